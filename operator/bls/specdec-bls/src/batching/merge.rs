//! Merges the calls of several sequences into one call with a row for each.

use std::borrow::Cow;

use triton::{DataType, Tensor};

use crate::engine::Call;

/// The target's input with the proposal.
pub const DRAFT_IDS: &str = "draft_input_ids";
/// The output with the index of the row that a response belongs to.
pub const ROW: &str = "batch_index";
const IDS: &str = "input_ids";
const NEW_TOKENS: &str = "request_output_len";
/// Names of the minimum of new tokens, by release of TensorRT-LLM.
const MIN_NAMES: [&str; 2] = ["min_length", "min_tokens"];

/// Whether two calls can become rows of one.
pub fn can_merge(first: &Call, second: &Call) -> bool {
    let pairs = || first.inputs.iter().zip(&second.inputs);
    first.outputs == second.outputs
        && first.inputs.len() == second.inputs.len()
        && pairs().all(|(left, right)| {
            left.name == right.name
                && left.kind == right.kind
                && left.shape.first() == Some(&1)
                && match left.name.as_ref() {
                    // Prefixes may differ in length: shorter ones are padded.
                    IDS => true,
                    DRAFT_IDS => first.draft_tokens == second.draft_tokens,
                    _ => left.shape == right.shape,
                }
        })
}

/// Inputs of a call that is sent alone.
pub fn single(call: &mut Call) -> Vec<Tensor> {
    let mut inputs = std::mem::take(&mut call.inputs);
    inputs.retain(has_content);
    inputs
}

/// Inputs and outputs of one call for several that [`can_merge`].
///
/// Proposals are padded to the longest one. The tokens that the target returns for the padding come
/// after those of the row's own proposal, and the sequence ignores them.
pub fn merged(calls: &[&Call]) -> (Vec<Tensor>, Vec<Cow<'static, str>>) {
    let Some(first) = calls.first() else {
        return (Vec::new(), Vec::new());
    };
    let mut inputs: Vec<Tensor> = (0..first.inputs.len())
        .filter_map(|index| stack(calls.iter().filter_map(|call| call.inputs.get(index))))
        .filter(has_content)
        .collect();
    let proposals = inputs.iter().find(|input| input.name == DRAFT_IDS);
    if let Some([_, longest]) = proposals.map(|proposals| proposals.shape.as_slice()) {
        let tokens = *longest as usize + 1;
        set_all_rows(&mut inputs, &[NEW_TOKENS], tokens);
    }
    let mut outputs = first.outputs.clone();
    outputs.push(ROW.into());
    (inputs, outputs)
}

/// Pad a proposal without tokens to one token, if it may be padded, so that the call has the same
/// inputs as the calls of other proposals.
pub fn pad_empty_proposal(call: &mut Call) {
    let padded = |input: &&mut Tensor| input.name == DRAFT_IDS && input.data.is_empty();
    if call.draft_tokens == 0 {
        return;
    }
    if let Some(proposal) = call.inputs.iter_mut().find(padded) {
        *proposal = Tensor::int32(DRAFT_IDS, &[1, 1], &[0]);
        set_all_rows(&mut call.inputs, &[NEW_TOKENS], 2);
    }
}

/// Let the draft propose only this many tokens.
pub fn shorten(call: &mut Call, draft_tokens: usize) {
    call.draft_tokens = draft_tokens;
    let [first, second] = MIN_NAMES;
    set_all_rows(&mut call.inputs, &[NEW_TOKENS, first, second], draft_tokens);
}

/// False for a proposal without tokens, which is not sent to an engine.
fn has_content(input: &Tensor) -> bool {
    input.name != DRAFT_IDS || !input.data.is_empty()
}

/// One tensor with these rows. Lists of tokens are padded to the longest one.
fn stack<'a>(rows: impl Iterator<Item = &'a Tensor> + Clone) -> Option<Tensor> {
    let longest = rows.clone().max_by_key(|row| row.data.len())?;
    let padded = [IDS, DRAFT_IDS].contains(&longest.name.as_ref());
    let mut data = Vec::new();
    let mut count = 0;
    for row in rows {
        count += 1;
        data.extend_from_slice(&row.data);
        if padded {
            data.resize(count * longest.data.len(), 0);
        }
    }
    let mut shape = longest.shape.clone();
    *shape.first_mut()? = count as i64;
    Some(Tensor::new(
        longest.name.clone(),
        longest.kind,
        &shape,
        data,
    ))
}

/// Set every row of the inputs of these names to the same value.
fn set_all_rows(inputs: &mut [Tensor], names: &[&str], value: usize) {
    for input in inputs.iter_mut() {
        if names.contains(&input.name.as_ref()) && input.kind == DataType::Int32 {
            let rows = input.shape.first().copied().unwrap_or(0).max(0) as usize;
            input.data = (value as i32).to_le_bytes().repeat(rows);
        }
    }
}
