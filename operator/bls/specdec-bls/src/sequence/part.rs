//! A part of an answer: what one response carries.

use triton::Tensor;

/// New text and tokens of one prompt's answer, and the numbers of the whole answer so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// The new text of a stream, or the whole text of an answer that is not streamed.
    pub text: String,
    /// Number of generated tokens in this part.
    pub tokens: usize,
    /// A log probability for each new token, or none at all.
    pub log_probs: Vec<f32>,
    /// Sum of the log probabilities of the answer so far.
    pub cum_log_prob: f64,
    /// Draft tokens that the target verified, over the answer so far.
    pub drafted: usize,
    /// Draft tokens that it accepted, over the answer so far.
    pub accepted: usize,
    /// Verification steps, over the answer so far.
    pub rounds: usize,
    /// At index i, the verification steps that accepted i draft tokens, over the answer so far.
    pub histogram: Vec<i32>,
    /// Additional outputs of the target.
    pub outputs: Vec<Tensor>,
}
