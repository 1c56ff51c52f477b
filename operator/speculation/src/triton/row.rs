//! Calls that share their way to an engine.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::prompt::Prompt;
use crate::engine::{Call, EngineError, Role};
use crate::gather::Alike;
use crate::tensor::Tensor;

const IDS: &str = "input_ids";
/// Tells the rows of one call's answers apart.
pub const ROW: &str = "batch_index";

/// One prompt's call.
pub struct Row {
    pub prompt: Arc<Prompt>,
    pub call: Call,
    /// The number under which an answer hears of a call beside its own.
    pub ahead: Option<u64>,
}

impl Alike for Row {
    fn alike(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.call, &other.call);
        let pairs = || mine.inputs.iter().zip(&theirs.inputs);
        mine.outputs == theirs.outputs
            && mine.inputs.len() == theirs.inputs.len()
            && pairs().all(|(one, two)| {
                // Prefixes may differ in length: shorter ones are filled up.
                one.name == two.name
                    && one.kind == two.kind
                    && one.shape.first() == Some(&1)
                    && (one.name == IDS || one.shape == two.shape)
            })
    }
}

/// Inputs and outputs of one call for all of these rows, which are alike.
pub fn merged(rows: &[Row]) -> (Vec<Tensor>, Vec<Cow<'static, str>>) {
    let first = &rows[0].call;
    let count = rows.len() as i64;
    let inputs = (0..first.inputs.len())
        .map(|place| {
            let own = || rows.iter().map(|row| &row.call.inputs[place]);
            let one = &first.inputs[place];
            let mut shape = one.shape.clone();
            shape[0] = count;
            let mut data = Vec::new();
            if one.name == IDS {
                let width = own().map(|ids| ids.data.len()).max().unwrap_or(0);
                shape[1] = (width / 4) as i64;
                data.reserve(width * rows.len());
                for ids in own() {
                    data.extend_from_slice(&ids.data);
                    data.resize(data.len() + width - ids.data.len(), 0);
                }
            } else {
                own().for_each(|tensor| data.extend_from_slice(&tensor.data));
            }
            Tensor::new(one.name.clone(), one.kind, &shape, data)
        })
        .collect();
    let mut outputs = first.outputs.clone();
    outputs.push(ROW.into());
    (inputs, outputs)
}

/// Rows under way to an engine.
pub struct Trip {
    pub role: Role,
    /// The number by which the rounds' gathering knows them.
    pub batch: Option<u64>,
    pub begun: Instant,
    /// Several rows in one call.
    pub shared: bool,
    rows: Mutex<Vec<Option<Row>>>,
    refused: Mutex<Option<EngineError>>,
}

impl Trip {
    pub fn new(role: Role, batch: Option<u64>, rows: Vec<Row>) -> Self {
        Self {
            role,
            batch,
            begun: Instant::now(),
            shared: rows.len() > 1,
            rows: Mutex::new(rows.into_iter().map(Some).collect()),
            refused: Mutex::new(None),
        }
    }

    /// The row of that place, for the one who asks first.
    pub fn take(&self, place: usize) -> Option<Row> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.get_mut(place)?.take()
    }

    /// Rows that nobody has taken.
    pub fn rest(&self) -> Vec<Row> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.iter_mut().filter_map(Option::take).collect()
    }

    /// The call of several rows was refused; which of them was meant is not said.
    pub fn refuse(&self, error: EngineError) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        *refused = Some(error);
    }

    /// Whether it was.
    pub fn was_refused(&self) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.is_some()
    }
}
