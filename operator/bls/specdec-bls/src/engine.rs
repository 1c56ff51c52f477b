//! Calls of the two engines, as an answer wants them made.

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
    /// Outputs asked for; others are never made.
    pub outputs: Vec<Cow<'static, str>>,
    /// It belongs to a round, which is short and has others beside it. Any other call may last as
    /// long as the answer, and is ended when the client goes.
    pub round: bool,
    /// Draft tokens: that the draft is asked for, or that a verification may be filled up to.
    pub drafts: usize,
    /// The draft may propose fewer of them where others would have to wait.
    pub shortens: bool,
}

/// What an engine answered.
pub type Answered = Result<Vec<Tensor>, Error>;

/// The tensor of that name.
pub fn find<'a>(tensors: &'a [Tensor], name: &str) -> Option<&'a Tensor> {
    tensors.iter().find(|one| one.name == name)
}

/// Tokens of beam 0 behind the first `skip`, which are the prefix that was sent.
///
/// Fails when the answer is shorter than the prefix, so nothing behind it can be found.
pub fn new_tokens(answer: &[Tensor], skip: usize, model: &str) -> Result<Vec<i32>, Error> {
    let length = find(answer, "sequence_length")
        .and_then(|one| one.integers().first().copied())
        .unwrap_or(0)
        .max(0) as usize;
    if length < skip {
        return Err(Error::EngineRefused(format!(
            "{model} answered {length} tokens to a prefix of {skip}: \
             set its parameter exclude_input_in_output to false"
        )));
    }
    // [1, beams, T]; T is 0 where a stream ends without a last token.
    let Some(ids) = find(answer, "output_ids") else {
        return Ok(Vec::new());
    };
    let beam = ids.shape.last().copied().unwrap_or(0).max(0) as usize;
    let end = length.min(beam);
    let bytes = ids.data.get(4 * skip.min(end)..4 * end).unwrap_or_default();
    let (tokens, _) = bytes.as_chunks::<4>();
    Ok(tokens.iter().map(|one| i32::from_le_bytes(*one)).collect())
}

/// Log probabilities of the first `count` new tokens of beam 0, fewer where none came.
pub fn token_log_probs(answer: &[Tensor], count: usize) -> Vec<f32> {
    let Some(found) = find(answer, "output_log_probs") else {
        return Vec::new();
    };
    let beam = found.shape.last().copied().unwrap_or(0).max(0) as usize;
    let mut values = found.floats();
    values.truncate(count.min(beam));
    values
}
