//! Calls of the two engines, as an answer wants them made.

use std::borrow::Cow;
use std::fmt;

use crate::tensor::Tensor;

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

/// Why an engine did not answer a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It does not serve what was asked.
    Refused,
    /// It has no room for the call: the same request may succeed when others have been answered.
    Busy,
    /// Its process died: the same request may succeed when the server is back.
    Gone,
}

/// An engine refused a call, or cannot answer it any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineError {
    /// Its own sentence.
    pub words: String,
    pub cause: Cause,
}

impl EngineError {
    pub fn new(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            cause: Cause::Refused,
        }
    }

    /// What an engine or its queue in Triton says, which is `unavailable` by Triton's code.
    ///
    /// TensorRT-LLM's own queue refuses with another code.
    pub fn said(words: String, unavailable: bool) -> Self {
        let busy = unavailable || words.contains("Maximum queue size of ");
        let cause = if busy { Cause::Busy } else { Cause::Refused };
        Self { words, cause }
    }

    /// The process of the engine `name` ended with a call under way.
    pub fn gone(name: &str) -> Self {
        Self {
            words: format!("{name}: its process ended during the call"),
            cause: Cause::Gone,
        }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.words)
    }
}

/// What an engine answered.
pub type Answered = Result<Vec<Tensor>, EngineError>;

/// The tensor of that name.
pub fn find<'a>(tensors: &'a [Tensor], name: &str) -> Option<&'a Tensor> {
    tensors.iter().find(|one| one.name == name)
}

/// Tokens of beam 0 behind the first `skip`, which are the prefix that was sent.
///
/// Fails when the answer is shorter than the prefix, so nothing behind it can be found.
pub fn new_tokens(answer: &[Tensor], skip: usize, model: &str) -> Result<Vec<i32>, EngineError> {
    let length = find(answer, "sequence_length")
        .and_then(|one| one.integers().first().copied())
        .unwrap_or(0)
        .max(0) as usize;
    if length < skip {
        return Err(EngineError::new(format!(
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
