//! How many draft tokens a round proposes: a fixed number, or the one with most tokens a second.
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
//! tokens (Leviathan et al. 2023, arXiv:2211.17192, equation 1) and takes D(g) + V(g) seconds, one
//! draft call and one verification; decoding without a draft gives one token in P seconds. The
//! adaptive policy chooses the g that maximises E(g) / (D(g) + V(g)), or no draft where 1 / P is
//! more, as goodput-driven speculation does (Liu et al. 2024, arXiv:2406.14066). All of these are
//! measured: a for each sequence, with the server's as its prior; D, V and P for each number of
//! sequences in flight, because an idle engine verifies tokens for nothing and a loaded one does
//! not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::locked;

mod costs;
pub mod estimate;

use costs::Costs;
pub use costs::expected_tokens;
use estimate::Acceptance;

/// Tokens of a target-only run, after which the length is chosen again.
const TARGET_ONLY_TOKENS: usize = 16;
/// Gain in speed that justifies another length: at once, and once a second.
const BIG_GAIN: f64 = 1.1;
const SMALL_GAIN: f64 = 1.01;
const SETTLE_SECONDS: f64 = 1.0;
/// Seconds between probes: rounds of another length, which keep the estimates of other lengths
/// true. Probes are rarer while the draft is idle, when a round costs more than it teaches.
const PROBE_SECONDS: f64 = 1.0;
const IDLE_PROBE_SECONDS: f64 = 2.0;
/// Lengths to probe relative to the chosen one, in turn. A length that was never measured at this
/// load is probed after `QUIET_ROUNDS` rounds already.
const OFFSETS: [isize; 4] = [1, -1, 2, -2];
const QUIET_ROUNDS: usize = 4;

/// What a policy chooses for the next call of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Draft tokens of the next round; 0 for a target-only run.
    pub length: usize,
    /// The length that the policy has just settled on, where it changed.
    pub settled: Option<usize>,
}

/// Chooses the draft lengths of one sequence.
pub trait DraftLength: Send {
    /// Choose the length of the next round.
    fn choose(&mut self) -> Choice;
    /// Tokens of a target-only run, 0 for the rest of the answer.
    fn target_only_tokens(&self) -> usize;
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
    /// The sequence has ended; further calls change nothing.
    fn close(&mut self);
}

/// The same number of draft tokens in every round; 0 never drafts.
#[derive(Clone, Copy, Debug)]
pub struct FixedLength(pub usize);

impl DraftLength for FixedLength {
    fn choose(&mut self) -> Choice {
        Choice {
            length: self.0,
            settled: None,
        }
    }
    fn target_only_tokens(&self) -> usize {
        0
    }
    fn round_completed(&mut self, _: usize, _: usize, _: f64, _: f64) {}
    fn target_only_completed(&mut self, _: usize, _: f64) {}
    fn close(&mut self) {}
}

/// Returns seconds, monotonic.
pub type Clock = Box<dyn Fn() -> f64 + Send>;

/// What all sequences of this server share: costs, the server's acceptance, probes.
#[derive(Clone)]
pub struct AdaptivePolicy(Arc<Mutex<Shared>>);

impl AdaptivePolicy {
    /// Lengths from `least` to `most`, `start` until something is measured.
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
            costs: HashMap::new(),
            sequences: 0,
            probed: started,
            target_only_probed: started,
            turn: 0,
        })))
    }

    /// The policy of one more sequence in flight.
    pub fn sequence(&self) -> AdaptiveSequence {
        let mut shared = locked(&self.0);
        shared.sequences += 1;
        AdaptiveSequence {
            own: Acceptance::default(),
            chosen: shared.start,
            changed: (shared.clock)(),
            server: Some(Arc::clone(&self.0)),
        }
    }
}

/// Chooses the draft lengths of one sequence; see [`AdaptivePolicy`]. Dropping it closes it.
pub struct AdaptiveSequence {
    /// None after the end.
    server: Option<Arc<Mutex<Shared>>>,
    own: Acceptance,
    chosen: usize,
    /// Seconds at which `chosen` changed.
    changed: f64,
}

impl AdaptiveSequence {
    /// Change `chosen` where another length is clearly faster; the new length then.
    fn settle(&mut self, shared: &mut Shared) -> Option<usize> {
        let now = (shared.clock)();
        let acceptance = self.own.value(now, Some(&shared.acceptance));
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
        let settled = now - self.changed > SETTLE_SECONDS;
        let needed = if settled { SMALL_GAIN } else { BIG_GAIN };
        let better = fastest > needed * costs.speed(self.chosen, acceptance);
        (best != self.chosen && better).then(|| {
            self.chosen = best;
            self.changed = now;
            best
        })
    }
}

impl DraftLength for AdaptiveSequence {
    /// The best length, sometimes another one as a probe.
    fn choose(&mut self) -> Choice {
        let Some(server) = self.server.clone() else {
            return Choice {
                length: self.chosen,
                settled: None,
            };
        };
        let mut shared = locked(&server);
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
        let Some(server) = &self.server else { return };
        let mut shared = locked(server);
        let now = (shared.clock)();
        shared.costs().verify.add(drafted, verify_seconds);
        if drafted == 0 {
            return;
        }
        shared.costs().draft.add(drafted, draft_seconds);
        let idle = self.chosen == 0 && accepted == drafted;
        if idle && self.own.value(now, Some(&shared.acceptance)) < 0.5 {
            // A probe of the idle draft went better than expected: the next choice probes again.
            shared.probed = f64::NEG_INFINITY;
        }
        self.own.add(drafted, accepted, now);
        shared.acceptance.add(drafted, accepted, now);
    }

    fn target_only_completed(&mut self, tokens: usize, seconds: f64) {
        let Some(server) = &self.server else { return };
        if tokens > 0 {
            let mut shared = locked(server);
            shared.costs().target_only.add(seconds / tokens as f64);
        }
    }

    fn close(&mut self) {
        if let Some(server) = self.server.take() {
            locked(&server).sequences -= 1;
        }
    }
}

impl Drop for AdaptiveSequence {
    fn drop(&mut self) {
        self.close();
    }
}

struct Shared {
    least: usize,
    most: usize,
    start: usize,
    clock: Clock,
    acceptance: Acceptance,
    /// By the bits of the number of sequences in flight.
    costs: HashMap<u32, Costs>,
    /// Sequences in flight.
    sequences: usize,
    /// Seconds of the last probe, and of the last one that was a target-only run.
    probed: f64,
    target_only_probed: f64,
    turn: usize,
}

impl Shared {
    /// Costs at the present load; numbers of sequences that differ less than twice are one load.
    fn costs(&mut self) -> &mut Costs {
        let load = usize::BITS - self.sequences.leading_zeros();
        self.costs.entry(load).or_default()
    }

    /// Another length to probe now; None mostly.
    fn probe(&mut self, chosen: usize) -> Option<usize> {
        let now = (self.clock)();
        let (least, most, turn) = (self.least, self.most, self.turn);
        let since = now - self.probed;
        let since_target_only = now - self.target_only_probed;
        let costs = self.costs();
        costs.quiet += 1;
        if least == 0 && chosen > 0 && costs.target_only_is_due(since_target_only) {
            costs.quiet = 0;
            self.target_only_probed = now;
            return Some(0);
        }
        let offset = OFFSETS.iter().cycle().nth(turn % OFFSETS.len());
        let offset = offset.copied().unwrap_or_default();
        let other = chosen.saturating_add_signed(offset).max(least).max(1);
        let other = other.min(most);
        let unknown = costs.quiet > QUIET_ROUNDS && !costs.verify.knows(other);
        let pause = if chosen > 0 {
            PROBE_SECONDS
        } else {
            IDLE_PROBE_SECONDS
        };
        if since < pause && !unknown {
            return None;
        }
        costs.quiet = 0;
        self.turn += 1;
        self.probed = now;
        (other != chosen).then_some(other)
    }
}
