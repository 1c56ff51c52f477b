//! A part of an answer as the client receives it.

use triton::Tensor;

/// New text and tokens of one prompt's answer, and what the whole answer has cost so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// New text of a stream, else the whole text.
    pub text: String,
    /// Number of generated tokens in this part.
    pub tokens: usize,
    /// One for each new token, or none.
    pub log_probs: Vec<f32>,
    /// Sum over the answer so far.
    pub cum_log_prob: f64,
    /// Draft tokens that the target verified, over the answer so far.
    pub drafted: usize,
    /// Draft tokens that it accepted, over the answer so far.
    pub accepted: usize,
    /// Verification steps, over the answer so far.
    pub rounds: usize,
    /// Further outputs of the target.
    pub outputs: Vec<Tensor>,
}
