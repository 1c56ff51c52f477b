//! Estimates what rounds yield in tokens and cost in seconds, for the choice of the draft length.

use super::estimate::{Curve, Mean, Rounds, VerificationSeconds};
use super::slope::Slope;

/// After this many seconds of rounds, summed over all sequences, a target-only run measures the
/// speed without a draft again. Idle time does not count, so such a probe takes about 1 % of the
/// rounds' time.
const TARGET_ONLY_PROBE_SECONDS: f64 = 30.0;

/// Seconds that Triton takes for a response of an engine, measured with a Python backend.
const RESPONSE_SECONDS: f64 = 0.0003;
/// In a stream, each step of the engine has a response, which may take at most this share of the
/// step's time. The alternative, calls of several tokens each, loses about the same share, because
/// each call waits for a step to end.
const STREAM_SHARE: f64 = 0.1;

/// Expected tokens of a round: the accepted ones and the target's own.
pub fn expected_tokens(length: usize, acceptance: f64) -> f64 {
    let most = length as f64 + 1.0;
    if acceptance >= 1.0 {
        return most;
    }
    (1.0 - acceptance.powf(most)) / (1.0 - acceptance)
}

/// Seconds that calls take at one load.
pub(super) struct Costs {
    pub draft: Curve,
    pub verify: VerificationSeconds,
    /// Seconds of each draft token in a verification that sequences share.
    pub slope: Slope,
    /// All rounds of a draft model.
    pub rounds: Rounds,
    pub target_only: Mean,
    /// How much longer the first token of a streamed call takes than the others.
    pub restart: Mean,
    /// Choices of a length since the last probe.
    pub rounds_since_probe: usize,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            draft: Curve::through_zero(),
            verify: VerificationSeconds::default(),
            slope: Slope::default(),
            rounds: Rounds::default(),
            target_only: Mean::default(),
            restart: Mean::default(),
            rounds_since_probe: 0,
        }
    }
}

impl Costs {
    /// Tokens a second of one sequence; 0.0 if nothing was measured.
    pub fn speed(&self, length: usize, acceptance: f64) -> f64 {
        let (tokens, seconds) = if length > 0 {
            let seconds = self.draft.at(length) + self.verify.at(length);
            (expected_tokens(length, acceptance), seconds)
        } else if self.target_only.value > 0.0 {
            (1.0, self.target_only.value)
        } else {
            // No target-only run was measured. A verification without draft tokens is the same
            // engine step, so its time is used.
            (1.0, self.verify.at(0))
        };
        if seconds > 0.0 { tokens / seconds } else { 0.0 }
    }

    /// As [`Costs::speed`], if this many sequences share a verification and all use this length.
    pub fn shared_speed(&self, length: usize, acceptance: f64, sequences: usize) -> f64 {
        let per_token = sequences as f64 * self.slope.lower_bound();
        if sequences == 1 || per_token == 0.0 || length == 0 {
            return self.speed(length, acceptance);
        }
        // A verification takes little longer if one proposal is longer, but much longer if the
        // proposals of all sequences are.
        let mean = self.slope.mean_tokens() / sequences as f64;
        let usual = self.verify.at(mean.round() as usize);
        let seconds = self.draft.at(length) + usual + per_token * (length as f64 - mean);
        expected_tokens(length, acceptance) / seconds
    }

    /// Whether a response for each token costs little beside the steps of the target.
    pub fn can_afford_streams(&self) -> bool {
        self.target_only.count == 0 || self.target_only.value > RESPONSE_SECONDS / STREAM_SHARE
    }

    /// Add the time that the first token of a streamed call took.
    pub fn stream_restarted(&mut self, seconds: f64) {
        if self.target_only.count > 0 {
            self.restart
                .add((seconds - self.target_only.value).max(0.0));
        }
    }

    /// Whether a target-only run should be measured (again).
    pub fn target_only_is_due(&self, worked: f64) -> bool {
        if self.target_only.count == 0 {
            return self.verify.count > 2;
        }
        worked > TARGET_ONLY_PROBE_SECONDS
    }
}
