//! Calls of the two engines, and the tensors that the engines return.

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
    /// Names of the outputs to return.
    pub outputs: Vec<Cow<'static, str>>,
    /// The call belongs to a round, so it is short and may share a batch with calls of other
    /// sequences. Any other call may take as long as the whole answer, and is cancelled when the
    /// client disconnects.
    pub batchable: bool,
    /// In a draft call, the number of tokens to propose. In a verification, the number of draft
    /// tokens to which its proposal may be padded.
    pub draft_tokens: usize,
    /// The draft may propose fewer tokens, if other sequences would have to wait for it.
    pub may_shorten: bool,
    /// The number of a streamed call within its sequence. In such a call, the engine sends each
    /// token as it decodes it. None for a call with a single result.
    pub stream: Option<u64>,
}

/// What an engine returned: its outputs or its error.
pub type EngineResult = Result<Vec<Tensor>, Error>;

/// The tensor of that name.
pub fn find<'a>(tensors: &'a [Tensor], name: &str) -> Option<&'a Tensor> {
    tensors.iter().find(|tensor| tensor.name == name)
}

/// Tokens of beam 0 after the first `skip`, which repeat the prefix of the call.
///
/// # Errors
/// The engine returned fewer tokens than the prefix has, so its output lacks the prefix.
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
    let beam_length = ids.shape.last().copied().unwrap_or(0).max(0) as usize;
    let (tokens, _) = ids.data.as_chunks::<4>();
    let tokens = tokens.iter().take(length.min(beam_length)).skip(skip);
    Ok(tokens.map(|token| i32::from_le_bytes(*token)).collect())
}

/// Log probabilities of the first `count` new tokens of beam 0, fewer where fewer were returned.
pub fn token_log_probs(outputs: &[Tensor], count: usize) -> Vec<f32> {
    let Some(tensor) = find(outputs, "output_log_probs") else {
        return Vec::new();
    };
    let beam_length = tensor.shape.last().copied().unwrap_or(0).max(0) as usize;
    let mut values = tensor.floats();
    values.truncate(count.min(beam_length));
    values
}
