//! Calls of the two engines, and how to read what they return.

use std::borrow::Cow;

use triton::Tensor;

use crate::error::Error;

/// Which engine a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Proposes tokens.
    Draft,
    /// Decides every token.
    Target,
}

/// One call of an engine.
#[derive(Clone, Debug)]
pub struct Call {
    pub role: Role,
    pub inputs: Vec<Tensor>,
    /// Outputs to return; no others are made.
    pub outputs: Vec<Cow<'static, str>>,
    /// It belongs to a round: it is short, and may share a batch with calls of other sequences.
    /// Any other call may last as long as the answer, and is cancelled with it.
    pub batchable: bool,
    /// Draft tokens to propose, or up to which a verification may be padded.
    pub draft_tokens: usize,
    /// The draft may propose fewer tokens where other sequences would have to wait.
    pub may_shorten: bool,
}

/// What an engine returned: its outputs, or why it refused.
pub type EngineResult = Result<Vec<Tensor>, Error>;

/// The tensor of that name.
pub fn find<'a>(tensors: &'a [Tensor], name: &str) -> Option<&'a Tensor> {
    tensors.iter().find(|tensor| tensor.name == name)
}

/// Tokens of beam 0 after the first `skip`, which repeat the prefix of the call.
///
/// # Errors
/// There are fewer tokens than the prefix has, so that none can be new.
pub fn new_tokens(outputs: &[Tensor], skip: usize, model: &str) -> Result<Vec<i32>, Error> {
    let length = find(outputs, "sequence_length")
        .and_then(|tensor| tensor.integers().first().copied())
        .unwrap_or(0)
        .max(0) as usize;
    if length < skip {
        return Err(Error::EngineRefused(format!(
            "{model} answered {length} tokens to a prefix of {skip}: \
             set its parameter exclude_input_in_output to false"
        )));
    }
    // [1, beams, T]; T is 0 where a stream ends without a last token.
    let Some(ids) = find(outputs, "output_ids") else {
        return Ok(Vec::new());
    };
    let beam = ids.shape.last().copied().unwrap_or(0).max(0) as usize;
    let (tokens, _) = ids.data.as_chunks::<4>();
    let tokens = tokens.iter().take(length.min(beam)).skip(skip);
    Ok(tokens.map(|token| i32::from_le_bytes(*token)).collect())
}

/// Log probabilities of the first `count` new tokens of beam 0, fewer where fewer were returned.
pub fn token_log_probs(outputs: &[Tensor], count: usize) -> Vec<f32> {
    let Some(tensor) = find(outputs, "output_log_probs") else {
        return Vec::new();
    };
    let beam = tensor.shape.last().copied().unwrap_or(0).max(0) as usize;
    let mut values = tensor.floats();
    values.truncate(count.min(beam));
    values
}
