//! What a call brings a sequence: a proposal of the draft, or new tokens.

use triton::Tensor;

/// New tokens of a sequence and what they cost.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// In order, without the prefix.
    pub tokens: Vec<i32>,
    /// One for each token, or none.
    pub log_probs: Vec<f32>,
    /// Draft tokens that the target verified.
    pub drafted: usize,
    /// Draft tokens that it accepted.
    pub accepted: usize,
    /// Verification steps, 0 in a target-only run.
    pub rounds: usize,
    /// Whether the proposal was ready before the round began.
    pub pipelined: bool,
    /// The answer ends with these tokens.
    pub finished: bool,
    /// Further outputs of the target, in a target-only run.
    pub outputs: Vec<Tensor>,
}

/// Draft tokens, with the logits they were drawn from where acceptance compares logits.
#[derive(Clone, Debug, Default)]
pub struct Proposal {
    pub tokens: Vec<i32>,
    pub logits: Option<Tensor>,
}
