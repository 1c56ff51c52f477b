//! What a sequence receives from an engine call: a proposal of the draft, or new tokens.

use triton::Tensor;

/// The new tokens of one call of the target, with the numbers of its round.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// The tokens in order, without the prefix of the call.
    pub tokens: Vec<i32>,
    /// A log probability for each token, or none at all.
    pub log_probs: Vec<f32>,
    /// Draft tokens that the target verified.
    pub drafted: usize,
    /// Draft tokens that it accepted.
    pub accepted: usize,
    /// Verification steps of the BLS, 0 in a target-only run.
    pub rounds: usize,
    /// Whether the proposal came from a pipelined draft call.
    pub pipelined: bool,
    /// The answer ends with these tokens.
    pub finished: bool,
    /// Additional outputs of the target.
    pub outputs: Vec<Tensor>,
}

/// Draft tokens, with the logits they were drawn from where acceptance compares logits.
#[derive(Clone, Debug, Default)]
pub struct Proposal {
    pub tokens: Vec<i32>,
    pub logits: Option<Tensor>,
}
