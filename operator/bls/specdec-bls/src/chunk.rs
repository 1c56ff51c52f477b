//! What a round brings: the draft's proposal, and the tokens that came of it.

use triton::Tensor;

/// New tokens of an answer and what they cost.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// In order, without the prefix.
    pub tokens: Vec<i32>,
    /// One for each token, or none.
    pub log_probs: Vec<f32>,
    /// Draft tokens offered to the target.
    pub drafted: usize,
    /// Draft tokens it accepted.
    pub accepted: usize,
    /// Verifications, 0 on the plain path.
    pub rounds: usize,
    /// Whether the proposal was there before the round began.
    pub early: bool,
    /// Nothing follows.
    pub finished: bool,
    /// Further tensors of the target, on the plain path.
    pub extras: Vec<Tensor>,
}

/// What the draft proposed, and the logits it drew that from where acceptance goes by them.
#[derive(Clone, Debug, Default)]
pub struct Proposal {
    pub tokens: Vec<i32>,
    pub logits: Option<Tensor>,
}
