//! Calls of several prompts as rows of one.

use std::borrow::Cow;

use crate::engine::Call;
use triton::{DataType, Tensor};

pub const DRAFT_IDS: &str = "draft_input_ids";
/// Tells the rows of one call's answers apart.
pub const ROW: &str = "batch_index";
const IDS: &str = "input_ids";
const NEW_TOKENS: &str = "request_output_len";
/// How the releases spell the minimum of new tokens.
const MINIMUMS: [&str; 2] = ["min_length", "min_tokens"];

/// Whether both fit into one call.
pub fn alike(mine: &Call, theirs: &Call) -> bool {
    let pairs = || mine.inputs.iter().zip(&theirs.inputs);
    mine.outputs == theirs.outputs
        && mine.inputs.len() == theirs.inputs.len()
        && pairs().all(|(one, two)| {
            one.name == two.name
                && one.kind == two.kind
                && one.shape.first() == Some(&1)
                && match one.name.as_ref() {
                    // Prefixes may differ in length: shorter ones are filled up.
                    IDS => true,
                    DRAFT_IDS => mine.drafts == theirs.drafts,
                    _ => one.shape == two.shape,
                }
        })
}

/// Inputs of a call that shares its way with no other.
pub fn single(call: &mut Call) -> Vec<Tensor> {
    let mut inputs = std::mem::take(&mut call.inputs);
    inputs.retain(says_something);
    inputs
}

/// Inputs and outputs of one call for all of these, which are alike; none for none.
///
/// Proposals are filled up to the longest one. What the target makes of tokens that nobody proposed
/// lies behind the tokens that their answer takes.
pub fn merged(calls: &[&Call]) -> (Vec<Tensor>, Vec<Cow<'static, str>>) {
    let Some(first) = calls.first() else {
        return (Vec::new(), Vec::new());
    };
    let mut inputs: Vec<Tensor> = (0..first.inputs.len())
        .filter_map(|place| side_by_side(calls.iter().map(|call| &call.inputs[place])))
        .filter(says_something)
        .collect();
    if let Some(proposals) = inputs.iter().find(|one| one.name == DRAFT_IDS) {
        let tokens = proposals.shape[1] as usize + 1;
        set(&mut inputs, &[NEW_TOKENS], tokens);
    }
    let mut outputs = first.outputs.clone();
    outputs.push(ROW.into());
    (inputs, outputs)
}

/// Let the draft propose so many tokens.
pub fn shorten(call: &mut Call, drafts: usize) {
    call.drafts = drafts;
    let [shorter, longer] = MINIMUMS;
    set(&mut call.inputs, &[NEW_TOKENS, shorter, longer], drafts);
}

/// No engine is told of a proposal without tokens.
fn says_something(input: &Tensor) -> bool {
    input.name != DRAFT_IDS || !input.data.is_empty()
}

/// Rows below each other; lists of tokens are filled up to the longest one.
fn side_by_side<'a>(rows: impl Iterator<Item = &'a Tensor> + Clone) -> Option<Tensor> {
    let widest = rows.clone().max_by_key(|row| row.data.len())?;
    let fills = [IDS, DRAFT_IDS].contains(&widest.name.as_ref());
    let mut shape = widest.shape.clone();
    shape[0] = 0;
    let mut data = Vec::new();
    for row in rows {
        shape[0] += 1;
        data.extend_from_slice(&row.data);
        if fills {
            data.resize(shape[0] as usize * widest.data.len(), 0);
        }
    }
    Some(Tensor::new(widest.name.clone(), widest.kind, &shape, data))
}

/// Give a value to each row of the inputs of these names.
fn set(inputs: &mut [Tensor], names: &[&str], value: usize) {
    for tensor in inputs.iter_mut() {
        if names.contains(&tensor.name.as_ref()) && tensor.kind == DataType::Int32 {
            let count = tensor.shape[0] as usize;
            tensor.data = (value as i32).to_le_bytes().repeat(count);
        }
    }
}
