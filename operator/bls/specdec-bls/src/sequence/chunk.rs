//! What a sequence receives from an engine call or a lookup: a proposal, or new tokens.

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
    /// Where the proposal came from.
    pub source: Source,
    /// The answer ends with these tokens.
    pub finished: bool,
    /// Additional outputs of the target.
    pub outputs: Vec<Tensor>,
}

/// Where the draft tokens of a round come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A call of the draft model.
    #[default]
    Model,
    /// A pipelined call of the draft model.
    PipelinedModel,
    /// An earlier occurrence of the last tokens, in the text itself or in the memory.
    /// `classes` has one entry for each token, from `lookup::Candidate::classes`.
    Lookup { classes: Vec<usize>, memory: bool },
}

/// Draft tokens, with the logits that they were drawn from if acceptance compares logits.
#[derive(Clone, Debug, Default)]
pub struct Proposal {
    pub tokens: Vec<i32>,
    /// The draft's log probability of each token, or none at all.
    pub log_probs: Vec<f32>,
    pub logits: Option<Tensor>,
    pub source: Source,
}
