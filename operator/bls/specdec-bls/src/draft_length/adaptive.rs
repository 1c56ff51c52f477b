//! The adaptive policy: shared costs and acceptance, and the choices of each sequence.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::costs::Costs;
use super::estimate::Acceptance;
use super::lookup::{self, ByClass};
use super::{Alternative, Choice, DraftLength};
use crate::lock::locked;

/// Tokens of a target-only run. After it, the policy chooses again.
const TARGET_ONLY_TOKENS: usize = 16;
/// The policy changes the length at any time if another one is faster by this factor.
const BIG_GAIN: f64 = 1.1;
/// It changes a length that has been in use for `SETTLE_SECONDS` if another one is faster by this
/// factor.
const SMALL_GAIN: f64 = 1.01;
const SETTLE_SECONDS: f64 = 1.0;
/// Seconds between probes. A probe is a round of another length, which keeps the estimates of that
/// length current. Probes are rarer while the chosen length is 0, because every draft call then
/// makes the answer slower.
const PROBE_SECONDS: f64 = 1.0;
const IDLE_PROBE_SECONDS: f64 = 2.0;
/// Differences between the probed and the chosen length, used in turn.
const OFFSETS: [isize; 4] = [1, -1, 2, -2];
/// After this many rounds without a probe, a length that was never measured at this load is probed
/// early.
const QUIET_ROUNDS: usize = 4;

/// Returns seconds, monotonic.
pub type Clock = Box<dyn Fn() -> f64 + Send>;

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
            costs: HashMap::new(),
            sequences: 0,
            probed_at: started,
            worked: 0.0,
            probes: 0,
        })))
    }

    /// The draft length of one more sequence in flight.
    pub fn sequence(&self) -> AdaptiveSequence {
        let mut shared = locked(&self.0);
        shared.sequences += 1;
        AdaptiveSequence {
            acceptance: Acceptance::default(),
            lookups: ByClass::default(),
            chosen: shared.start,
            changed_at: (shared.clock)(),
            policy: Some(Arc::clone(&self.0)),
        }
    }
}

/// Chooses the draft lengths of one sequence; see [`AdaptivePolicy`]. Dropping it closes it.
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
}

impl AdaptiveSequence {
    /// Change `chosen` if another length is clearly faster; the new length, if it changed.
    fn settle(&mut self, shared: &mut Shared) -> Option<usize> {
        let now = (shared.clock)();
        let acceptance = self.acceptance.value(now, Some(&shared.acceptance));
        let (least, most) = (shared.least, shared.most);
        let costs = shared.costs();
        if costs.verify.count == 0 && costs.target_only.count == 0 {
            return None;
        }
        let (mut best, mut fastest) = (least, costs.speed(least, acceptance));
        for length in least + 1..=most {
            let speed = costs.speed(length, acceptance);
            if speed > fastest {
                (best, fastest) = (length, speed);
            }
        }
        let settled = now - self.changed_at > SETTLE_SECONDS;
        let needed = if settled { SMALL_GAIN } else { BIG_GAIN };
        let better = fastest > needed * costs.speed(self.chosen, acceptance);
        (best != self.chosen && better).then(|| {
            self.chosen = best;
            self.changed_at = now;
            best
        })
    }
}

impl DraftLength for AdaptiveSequence {
    /// Choose the fastest length, or sometimes another one as a probe.
    fn choose(&mut self) -> Choice {
        let Some(policy) = self.policy.clone() else {
            return Choice {
                length: self.chosen,
                settled: None,
            };
        };
        let mut shared = locked(&policy);
        let settled = self.settle(&mut shared);
        let length = shared.probe(self.chosen).unwrap_or(self.chosen);
        Choice { length, settled }
    }

    fn target_only_tokens(&self) -> usize {
        TARGET_ONLY_TOKENS
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
        shared.costs().verify.add(drafted, verify_seconds);
        if drafted == 0 {
            return;
        }
        shared.costs().draft.add(drafted, draft_seconds);
        let succeeded = self.chosen == 0 && accepted == drafted;
        if succeeded && self.acceptance.value(now, Some(&shared.acceptance)) < 0.5 {
            // Drafting is off, but the target accepted a whole probe against expectation. The text
            // may have changed, so the next choice probes again.
            shared.probed_at = f64::NEG_INFINITY;
        }
        self.acceptance.add(drafted, accepted, now);
        shared.acceptance.add(drafted, accepted, now);
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
        let most = shared.most;
        let costs = shared.costs();
        let worth = survivals.get(..most).unwrap_or(&survivals);
        let restart = match alternative {
            Alternative::Stream => costs.restart.value,
            _ => 0.0,
        };
        let (length, speed) = lookup::fastest(worth, costs, restart);
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
        let Some(policy) = &self.policy else { return };
        let mut shared = locked(policy);
        let now = (shared.clock)();
        shared.worked += verify_seconds;
        shared.costs().verify.add(classes.len(), verify_seconds);
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

/// What all sequences of a server share.
struct Shared {
    least: usize,
    most: usize,
    start: usize,
    clock: Clock,
    /// The acceptance of all sequences' draft tokens.
    acceptance: Acceptance,
    /// The acceptance of all lookups' candidates.
    lookups: ByClass,
    /// Costs at each load; [`Shared::costs`] defines the key.
    costs: HashMap<u32, Costs>,
    /// Sequences in flight.
    sequences: usize,
    /// Seconds of the clock at the last probe with draft tokens, and the number of such probes.
    probed_at: f64,
    probes: usize,
    /// Seconds of all rounds since the last probe that was a target-only run.
    worked: f64,
}

impl Shared {
    /// Costs at the present load. Numbers of sequences with equally many bits, such as 4 to 7,
    /// count as one load.
    fn costs(&mut self) -> &mut Costs {
        let load = usize::BITS - self.sequences.leading_zeros();
        self.costs.entry(load).or_default()
    }

    /// The length to probe in this round, if it should be a probe.
    fn probe(&mut self, chosen: usize) -> Option<usize> {
        let now = (self.clock)();
        let (least, most, probes) = (self.least, self.most, self.probes);
        let since = now - self.probed_at;
        let worked = self.worked;
        let costs = self.costs();
        costs.rounds_since_probe += 1;
        if least == 0 && chosen > 0 && costs.target_only_is_due(worked) {
            costs.rounds_since_probe = 0;
            self.worked = 0.0;
            return Some(0);
        }
        let offset = OFFSETS.iter().cycle().nth(probes % OFFSETS.len());
        let offset = offset.copied().unwrap_or_default();
        let other = chosen.saturating_add_signed(offset).max(least).max(1);
        let other = other.min(most);
        let unknown = costs.rounds_since_probe > QUIET_ROUNDS && !costs.verify.knows(other);
        let pause = if chosen > 0 {
            PROBE_SECONDS
        } else {
            IDLE_PROBE_SECONDS
        };
        if since < pause && !unknown {
            return None;
        }
        costs.rounds_since_probe = 0;
        self.probes += 1;
        self.probed_at = now;
        (other != chosen).then_some(other)
    }
}
