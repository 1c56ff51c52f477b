//! The choices of a sequence with the adaptive policy.

use std::sync::{Arc, Mutex};

use super::estimate::Acceptance;
use super::lookup::{self, ByClass};
use super::shared::Shared;
use super::survival::Next;
use super::{Alternative, Choice, LengthPolicy};
use crate::lock::locked;

/// Tokens of a target-only run. After it, the policy chooses again.
const TARGET_ONLY_TOKENS: usize = 16;
/// The policy changes the length at any time if another one is faster by this factor.
const BIG_GAIN: f64 = 1.1;
/// It changes a length that has been in use for `SETTLE_SECONDS` if another one is faster by this
/// factor.
const SMALL_GAIN: f64 = 1.01;
const SETTLE_SECONDS: f64 = 1.0;

/// Chooses the draft lengths of one sequence; see [`super::AdaptivePolicy`]. Dropping it closes it.
pub struct AdaptiveSequence {
    /// What all sequences share; None after the end of this one.
    policy: Option<Arc<Mutex<Shared>>>,
    /// The acceptance of this sequence's own draft tokens.
    acceptance: Acceptance,
    /// The acceptance of the candidates of its own lookups.
    lookups: ByClass,
    chosen: usize,
    /// When `chosen` changed, in seconds of the clock.
    changed_at: f64,
    /// Proposals may be cut by their log probabilities.
    may_cut: bool,
    round: Round,
}

/// The round of a sequence.
#[derive(Default)]
struct Round {
    /// When its length was chosen, in seconds of the clock.
    started: f64,
    /// Its draft calls return log probabilities.
    needs_log_probs: bool,
    /// It is part of the trial that compares whole proposals with those that further calls extend.
    in_trial: bool,
    /// The proposal may be shortened, because its verification is shared.
    shortens: bool,
    /// Tokens of a draft call, if further calls may extend the proposal.
    step: Option<usize>,
    log_probs: Vec<f32>,
}

impl AdaptiveSequence {
    /// A sequence that counts as in flight. Its proposals may be cut if `may_cut`.
    pub(super) fn new(policy: Arc<Mutex<Shared>>, may_cut: bool) -> Self {
        let mut shared = locked(&policy);
        shared.sequences += 1;
        let (chosen, changed_at) = (shared.start, (shared.clock)());
        drop(shared);
        Self {
            policy: Some(policy),
            acceptance: Acceptance::default(),
            lookups: ByClass::default(),
            chosen,
            changed_at,
            may_cut,
            round: Round::default(),
        }
    }

    /// Change `chosen` if another length is clearly faster. Returns the new length if it changed.
    fn settle(&mut self, shared: &mut Shared) -> Option<usize> {
        let now = (shared.clock)();
        // Sequences that wait for each other wait for the longest proposal. So all of them use the
        // length that is best for them together.
        let (acceptance, sequences) = match shared.shares_verifications() {
            true => (shared.acceptance.value(now, None), shared.sequences),
            false => (self.acceptance.value(now, Some(&shared.acceptance)), 1),
        };
        let (least, most) = (shared.least, shared.most);
        let costs = shared.costs();
        if costs.verify.count == 0 && costs.target_only.count == 0 {
            return None;
        }
        let speed = |length| costs.shared_speed(length, acceptance, sequences);
        let (mut best, mut fastest) = (least, speed(least));
        for length in least + 1..=most {
            let speed = speed(length);
            if speed > fastest {
                (best, fastest) = (length, speed);
            }
        }
        let settled = now - self.changed_at > SETTLE_SECONDS;
        let needed = if settled { SMALL_GAIN } else { BIG_GAIN };
        let better = fastest > needed * speed(self.chosen);
        (best != self.chosen && better).then(|| {
            self.chosen = best;
            self.changed_at = now;
            best
        })
    }
}

impl LengthPolicy for AdaptiveSequence {
    /// Choose the fastest length, or sometimes another one as a probe.
    fn choose(&mut self) -> Choice {
        let Some(policy) = self.policy.clone() else {
            return Choice {
                length: self.chosen,
                most: self.chosen,
                settled: None,
            };
        };
        let mut shared = locked(&policy);
        let settled = self.settle(&mut shared);
        let probe = shared.probe(self.chosen);
        let length = probe.unwrap_or(self.chosen);
        let shares = shared.shares_verifications();
        let is_useful = shared.sequences == 1 || shares;
        let needs_log_probs = self.may_cut && is_useful && shared.has_log_probs();
        let may_cut = needs_log_probs && probe.is_none() && length > 1;
        // Other sequences would wait for an extended proposal.
        let in_trial = may_cut && shared.sequences == 1;
        let extends = in_trial && shared.trial.begin_round();
        self.round = Round {
            started: (shared.clock)(),
            needs_log_probs,
            in_trial,
            shortens: may_cut && shares,
            step: extends.then_some(length.div_ceil(2)),
            log_probs: Vec::new(),
        };
        Choice {
            length: self.round.step.unwrap_or(length),
            most: if extends { shared.most } else { length },
            settled,
        }
    }

    fn target_only_tokens(&self) -> usize {
        TARGET_ONLY_TOKENS
    }

    fn needs_log_probs(&self) -> bool {
        self.round.needs_log_probs
    }

    fn proposed(&mut self, tokens: usize, seconds: f64, log_probs: &[f32]) -> Next {
        let Some(policy) = &self.policy else {
            return Next::Verify(usize::MAX);
        };
        let mut shared = locked(policy);
        shared.costs().draft.add(tokens, seconds);
        if self.round.needs_log_probs {
            shared.count_log_probs(log_probs);
        }
        self.round.log_probs = log_probs.to_vec();
        if log_probs.is_empty() {
            return Next::Verify(usize::MAX);
        }
        match self.round.step {
            Some(step) => shared.next(log_probs, step),
            None if self.round.shortens => Next::Verify(shared.worth_verifying(log_probs)),
            None => Next::Verify(usize::MAX),
        }
    }

    fn round_completed(
        &mut self,
        drafted: usize,
        accepted: usize,
        draft_seconds: f64,
        verify_seconds: f64,
    ) {
        let Some(policy) = &self.policy else { return };
        let mut shared = locked(policy);
        let now = (shared.clock)();
        shared.worked += draft_seconds + verify_seconds;
        let costs = shared.costs();
        costs.verify.add(drafted, verify_seconds);
        costs
            .rounds
            .add(accepted + 1, draft_seconds + verify_seconds);
        if drafted == 0 {
            return;
        }
        let log_probs = std::mem::take(&mut self.round.log_probs);
        let verified = log_probs.get(..drafted).unwrap_or(&log_probs);
        shared.survival.add(verified, accepted);
        if self.round.in_trial {
            let (extended, seconds) = (self.round.step.is_some(), now - self.round.started);
            shared.trial.add(extended, accepted + 1, seconds);
        }
        let succeeded = self.chosen == 0 && accepted == drafted;
        if succeeded && self.acceptance.value(now, Some(&shared.acceptance)) < 0.5 {
            // Drafting is off, but the target accepted a whole probe against expectation. The text
            // may have changed, so the next choice probes again.
            shared.probed_at = f64::NEG_INFINITY;
        }
        // Further calls extend a proposal only if the target is likely to accept all of it so far.
        // Their tokens would therefore bias the estimate, and only those of the first call count.
        let first = self.round.step.unwrap_or(usize::MAX);
        let (drafted, accepted) = (drafted.min(first), accepted.min(first));
        let log_probs = log_probs.get(..first).unwrap_or(&log_probs);
        let (successes, failures) = shared.survival.outcome(log_probs, drafted, accepted);
        self.acceptance.add_expected(successes, failures, now);
        shared.acceptance.add_expected(successes, failures, now);
    }

    fn target_only_completed(&mut self, tokens: usize, seconds: f64) {
        let Some(policy) = &self.policy else { return };
        if tokens > 0 {
            let mut shared = locked(policy);
            shared.costs().target_only.add(seconds / tokens as f64);
        }
    }

    fn can_afford_streams(&self) -> bool {
        let Some(policy) = &self.policy else {
            return true;
        };
        locked(policy).costs().can_afford_streams()
    }

    fn stream_restarted(&mut self, seconds: f64) {
        if let Some(policy) = &self.policy {
            locked(policy).costs().stream_restarted(seconds);
        }
    }

    fn choose_lookup(&mut self, classes: &[usize], alternative: Alternative) -> usize {
        let Some(policy) = &self.policy else { return 0 };
        let mut shared = locked(policy);
        let now = (shared.clock)();
        let survivals = self.lookups.survivals(classes, now, &shared.lookups);
        let acceptance = self.acceptance.value(now, Some(&shared.acceptance));
        let (most, shares) = (shared.most, shared.shares_verifications());
        let costs = shared.costs();
        let worth = survivals.get(..most).unwrap_or(&survivals);
        let more = match alternative {
            Alternative::Stream => costs.restart.value,
            // The verification waits for the proposals of the other sequences.
            Alternative::DraftModel if shares => costs.draft.at(self.chosen),
            _ => 0.0,
        };
        let (length, speed) = lookup::fastest(worth, costs, more);
        let slower = match alternative {
            Alternative::TargetOnly | Alternative::Stream => false,
            Alternative::DraftModel => {
                costs.verify.count > 0
                    && speed < lookup::GAIN * costs.speed(self.chosen, acceptance)
            }
        };
        if slower { 0 } else { length }
    }

    fn lookup_completed(&mut self, classes: &[usize], accepted: usize, verify_seconds: f64) {
        if let Some(policy) = &self.policy {
            let mut shared = locked(policy);
            shared.worked += verify_seconds;
            shared.costs().verify.add(classes.len(), verify_seconds);
        }
        self.lookup_compared(classes, accepted);
    }

    fn lookup_compared(&mut self, classes: &[usize], accepted: usize) {
        let Some(policy) = &self.policy else { return };
        let mut shared = locked(policy);
        let now = (shared.clock)();
        self.lookups.add(classes, accepted, now);
        shared.lookups.add(classes, accepted, now);
    }

    fn close(&mut self) {
        if let Some(policy) = self.policy.take() {
            locked(&policy).sequences -= 1;
        }
    }
}

impl Drop for AdaptiveSequence {
    fn drop(&mut self) {
        self.close();
    }
}
