//! Calls of several prompts as rows of one.

use std::borrow::Cow;

use crate::engine::Call;
use crate::tensor::Tensor;

const IDS: &str = "input_ids";
/// Tells the rows of one call's answers apart.
pub const ROW: &str = "batch_index";

/// Whether both fit into one call.
pub fn alike(mine: &Call, theirs: &Call) -> bool {
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

/// Inputs and outputs of one call for all of these, which are alike; none for none.
pub fn merged(calls: &[&Call]) -> (Vec<Tensor>, Vec<Cow<'static, str>>) {
    let Some(first) = calls.first() else {
        return (Vec::new(), Vec::new());
    };
    let count = calls.len() as i64;
    let inputs = (0..first.inputs.len())
        .map(|place| {
            let own = || calls.iter().map(|call| &call.inputs[place]);
            let one = &first.inputs[place];
            let mut shape = one.shape.clone();
            shape[0] = count;
            let mut data = Vec::new();
            if one.name == IDS {
                let width = own().map(|ids| ids.data.len()).max().unwrap_or(0);
                shape[1] = (width / 4) as i64;
                data.reserve(width * calls.len());
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
