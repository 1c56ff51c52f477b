//! The adaptive policy of a server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::adaptive::AdaptiveSequence;
use super::estimate::Acceptance;
use super::lookup::ByClass;
use super::shared::{Clock, Shared};
use super::survival::Survival;
use super::trial::Trial;
use crate::batching::Verified;
use crate::lock::locked;

/// The adaptive policy of a server. All sequences share its costs, its acceptance and its probes.
#[derive(Clone)]
pub struct AdaptivePolicy(Arc<Mutex<Shared>>);

impl AdaptivePolicy {
    /// A policy for lengths from `least` to `most`, which starts with `start`.
    ///
    /// With `least` 0, the target may also decode without the draft.
    pub fn new(least: usize, most: usize, start: usize, clock: Clock) -> Self {
        let most = most.max(least);
        let started = clock();
        Self(Arc::new(Mutex::new(Shared {
            least,
            most,
            start: start.clamp(least, most),
            clock,
            acceptance: Acceptance::default(),
            lookups: ByClass::default(),
            survival: Survival::default(),
            trial: Trial::default(),
            missing_log_probs: 0,
            costs: HashMap::new(),
            sequences: 0,
            synchronized: false,
            probed_at: started,
            worked: 0.0,
            probes: 0,
        })))
    }

    /// Chooses the draft lengths of one more sequence, which is in flight from now on.
    pub fn sequence(&self) -> AdaptiveSequence {
        AdaptiveSequence::new(Arc::clone(&self.0), false)
    }

    /// As [`AdaptivePolicy::sequence`], with proposals that may be cut by their log probabilities.
    pub fn cutting_sequence(&self) -> AdaptiveSequence {
        AdaptiveSequence::new(Arc::clone(&self.0), true)
    }

    /// The target has verified the proposals of a batch.
    pub fn batch_verified(&self, verified: Verified) {
        let mut shared = locked(&self.0);
        shared.synchronized = verified.synchronized;
        if verified.synchronized {
            let slope = &mut shared.costs().slope;
            slope.add(verified.draft_tokens, verified.seconds);
        }
    }
}
