//! Chooses the draft length of each round: a fixed one, or the one with the most tokens a second.
//!
//! [`AdaptivePolicy`] belongs to the server and learns from all sequences. Each sequence in flight
//! has an [`AdaptiveSequence`], which chooses the draft length of its next round.
//!
//! With acceptance rate a, a round of g draft tokens gives on average
//!
//! ```text
//! E(g) = 1 + a + ... + a^g = (1 - a^(g+1)) / (1 - a)
//! ```
//!
//! tokens (Leviathan et al. 2023, arXiv:2211.17192, equation 1). The round takes D(g) + V(g)
//! seconds: D(g) for the draft call and V(g) for the verification. Decoding without a draft gives
//! one token in P seconds. The adaptive policy chooses the g that maximises E(g) / (D(g) + V(g)).
//! If 1 / P is more, it chooses no draft. Goodput-driven speculation chooses in the same way (Liu
//! et al. 2024, arXiv:2406.14066).
//!
//! The policy measures all of these. It estimates a for each sequence, with the server's acceptance
//! as the prior. It measures D, V and P for each load: 1, 2 to 3, 4 to 7 sequences in flight, and
//! so on. An idle engine verifies more tokens in about the same time, but a loaded one does not.
//!
//! Sequences that share verifications wait for the longest proposal, so all of them use the length
//! that is best for them together.
//!
//! If the draft returns log probabilities, proposals are cut by them; see `survival`. A single
//! sequence asks the draft for more tokens while they are worth their time. Sequences that share a
//! verification leave out the tokens that are least likely to be accepted, if the verification
//! takes longer for each token.

mod adaptive;
mod costs;
pub mod estimate;
mod lookup;
mod policy;
mod shared;
mod slope;
mod survival;
mod trial;

pub use adaptive::AdaptiveSequence;
pub use costs::expected_tokens;
pub use policy::AdaptivePolicy;
pub use shared::Clock;
pub use survival::Next;

/// What a policy chooses for the next call of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Draft tokens of the next round's first draft call; 0 for a target-only run.
    pub length: usize,
    /// Most draft tokens of the round, if further calls add to the proposal.
    pub most: usize,
    /// The new chosen length, if this choice changed it. A probe does not change it: it tries
    /// another length once, to keep the measurements current.
    pub settled: Option<usize>,
}

/// What a sequence does if it does not verify a lookup's candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alternative {
    /// The target decodes alone.
    TargetOnly,
    /// The target goes on with a streamed call. A round cancels that call, and the next streamed
    /// call takes time to start.
    Stream,
    /// The draft model proposes tokens.
    DraftModel,
}

/// Chooses the draft lengths of one sequence.
pub trait LengthPolicy: Send {
    /// Choose the length of the next round.
    fn choose(&mut self) -> Choice;
    /// Tokens of a target-only run; 0 for all that remain of the answer.
    fn target_only_tokens(&self) -> usize;
    /// Whether draft calls have to return the log probabilities of their tokens.
    fn needs_log_probs(&self) -> bool;
    /// A draft call has proposed this many tokens after this time. Choose how the round continues;
    /// the log probabilities are those of the whole proposal, or none at all.
    fn proposed(&mut self, tokens: usize, seconds: f64, log_probs: &[f32]) -> Next;
    /// A round has ended: tokens proposed and accepted, seconds of draft and verification.
    fn round_completed(
        &mut self,
        drafted: usize,
        accepted: usize,
        draft_seconds: f64,
        verify_seconds: f64,
    );
    /// A target-only run has ended.
    fn target_only_completed(&mut self, tokens: usize, seconds: f64);
    /// Whether a streamed call costs little beside the steps of the target.
    fn can_afford_streams(&self) -> bool;
    /// A streamed call that continues an answer has sent its first tokens after this time.
    fn stream_restarted(&mut self, seconds: f64);
    /// Choose how many tokens of a lookup's candidate to verify, by their classes; 0 for none.
    fn choose_lookup(&mut self, classes: &[usize], alternative: Alternative) -> usize;
    /// The verification of candidate tokens of these classes has ended.
    fn lookup_completed(&mut self, classes: &[usize], accepted: usize, verify_seconds: f64);
    /// Candidate tokens of these classes were not verified. The first `accepted` of them are equal
    /// to the tokens that the target generated in their place.
    fn lookup_compared(&mut self, classes: &[usize], accepted: usize);
    /// The sequence has ended; further calls change nothing.
    fn close(&mut self);
}

/// The same number of draft tokens in every round; 0 never drafts.
#[derive(Clone, Copy, Debug)]
pub struct FixedLength(pub usize);

impl LengthPolicy for FixedLength {
    fn choose(&mut self) -> Choice {
        Choice {
            length: self.0,
            most: self.0,
            settled: None,
        }
    }
    fn target_only_tokens(&self) -> usize {
        0
    }
    fn needs_log_probs(&self) -> bool {
        false
    }
    fn proposed(&mut self, _: usize, _: f64, _: &[f32]) -> Next {
        Next::Verify(usize::MAX)
    }
    fn round_completed(&mut self, _: usize, _: usize, _: f64, _: f64) {}
    fn target_only_completed(&mut self, _: usize, _: f64) {}
    fn can_afford_streams(&self) -> bool {
        true
    }
    fn stream_restarted(&mut self, _: f64) {}
    fn choose_lookup(&mut self, classes: &[usize], _: Alternative) -> usize {
        classes.len().min(self.0)
    }
    fn lookup_completed(&mut self, _: &[usize], _: usize, _: f64) {}
    fn lookup_compared(&mut self, _: &[usize], _: usize) {}
    fn close(&mut self) {}
}
