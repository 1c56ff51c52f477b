//! What the sequences of a server share: costs, acceptance and probes.

use std::collections::HashMap;

use super::costs::Costs;
use super::estimate::Acceptance;
use super::lookup::ByClass;
use super::survival::{Next, Survival};
use super::trial::Trial;

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

/// After this many draft calls in a row that returned no log probabilities, draft calls no longer
/// request them. Single calls may lack them, because a pipelined call may have begun before they
/// were needed.
const MOST_MISSING: usize = 8;

/// Returns seconds, monotonic.
pub type Clock = Box<dyn Fn() -> f64 + Send>;

/// What all sequences of a server share.
pub(super) struct Shared {
    pub least: usize,
    pub most: usize,
    pub start: usize,
    pub clock: Clock,
    /// The acceptance of all sequences' draft tokens.
    pub acceptance: Acceptance,
    /// The acceptance of all lookups' candidates.
    pub lookups: ByClass,
    /// The acceptance of draft tokens by their log probabilities.
    pub survival: Survival,
    /// Whether extended proposals are faster than whole ones.
    pub trial: Trial,
    /// Draft calls in a row that returned no log probabilities.
    pub missing_log_probs: usize,
    /// Costs at each load; [`Shared::costs`] defines the key.
    pub costs: HashMap<u32, Costs>,
    /// Sequences in flight.
    pub sequences: usize,
    /// Sequences wait for each other, so that one verification serves many.
    pub synchronized: bool,
    /// Seconds of the clock at the last probe with draft tokens, and the number of such probes.
    pub probed_at: f64,
    pub probes: usize,
    /// Seconds of all rounds since the last probe that was a target-only run.
    pub worked: f64,
}

impl Shared {
    /// Costs at the present load. Numbers of sequences with equally many bits, such as 4 to 7,
    /// count as one load.
    pub fn costs(&mut self) -> &mut Costs {
        let load = self.load_class();
        self.costs.entry(load).or_default()
    }

    fn load_class(&self) -> u32 {
        usize::BITS - self.sequences.leading_zeros()
    }

    /// Whether the draft returns log probabilities, as far as is known.
    pub fn has_log_probs(&self) -> bool {
        self.missing_log_probs < MOST_MISSING
    }

    /// Whether several sequences share verifications.
    pub fn shares_verifications(&self) -> bool {
        self.synchronized && self.sequences > 1
    }

    /// Count whether the draft returned log probabilities.
    pub fn count_log_probs(&mut self, log_probs: &[f32]) {
        self.missing_log_probs = match log_probs.is_empty() {
            true => self.missing_log_probs + 1,
            false => 0,
        };
    }

    /// How a round continues after a proposal with these log probabilities, if its draft calls have
    /// `step` tokens.
    pub fn next(&mut self, log_probs: &[f32], step: usize) -> Next {
        let load = self.load_class();
        let costs = self.costs.entry(load).or_default();
        let speed = self.trial.speed();
        match self.survival.is_worth_more(log_probs, step, speed, costs) {
            true => Next::Draft(step),
            false => Next::Verify(self.worth_verifying(log_probs)),
        }
    }

    /// The number of tokens of a proposal that are worth their time in a verification.
    ///
    /// Each token delays all sequences that share the verification. So the same limit applies to
    /// the tokens of all of them: a token is verified if its survival is above the limit.
    pub fn worth_verifying(&mut self, log_probs: &[f32]) -> usize {
        let sequences = self.sequences as f64;
        let costs = self.costs();
        let lost = costs.slope.lower_bound() * costs.rounds.speed() * sequences;
        self.survival.likelier(log_probs, lost)
    }

    /// The length to probe in this round, if it should be a probe.
    pub fn probe(&mut self, chosen: usize) -> Option<usize> {
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
