//! Calls that share their way to an engine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::prompt::Prompt;
use crate::engine::{Call, EngineError, Role};
use crate::gather::Alike;
use crate::rows::alike;

/// One prompt's call.
pub struct Row {
    pub prompt: Arc<Prompt>,
    pub call: Call,
    /// The number under which an answer hears of a call beside its own.
    pub ahead: Option<u64>,
}

impl Alike for Row {
    fn alike(&self, other: &Self) -> bool {
        alike(&self.call, &other.call)
    }
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
