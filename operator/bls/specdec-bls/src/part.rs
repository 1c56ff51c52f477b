//! A piece of an answer as the client sees it.

use triton::Tensor;

/// New text and tokens of one prompt's answer, and what the whole answer has cost so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// New text of a stream, else the whole text.
    pub text: String,
    /// Generated tokens that this part brings.
    pub tokens: usize,
    /// One for each new token, or none.
    pub log_probs: Vec<f32>,
    /// Sum over the whole answer so far.
    pub cum_log_prob: f64,
    /// Draft tokens offered to the target, over the whole answer so far.
    pub drafted: usize,
    /// Draft tokens it accepted, over the whole answer so far.
    pub accepted: usize,
    /// Verifications, over the whole answer so far.
    pub rounds: usize,
    /// Further tensors of the target.
    pub extras: Vec<Tensor>,
}
