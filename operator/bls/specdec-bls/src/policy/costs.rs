//! What rounds give and cost.

use crate::estimate::{Curve, Mean};

/// Seconds between stretches without a draft that are there to be measured.
const PLAIN_PROBE_SECONDS: f64 = 10.0;

/// Tokens of a round: the accepted ones and the target's own.
pub fn expected_tokens(length: usize, acceptance: f64) -> f64 {
    let most = length as f64 + 1.0;
    if acceptance >= 1.0 {
        return most;
    }
    (1.0 - acceptance.powf(most)) / (1.0 - acceptance)
}

/// Seconds that calls take while so many prompts are in flight.
pub(super) struct Costs {
    pub draft: Curve,
    pub verify: Curve,
    pub plain: Mean,
    /// Rounds since the last probe.
    pub quiet: usize,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            draft: Curve::through_zero(),
            verify: Curve::default(),
            plain: Mean::default(),
            quiet: 0,
        }
    }
}

impl Costs {
    /// Tokens a second of one prompt; 0.0 where nothing is known.
    pub fn speed(&self, length: usize, acceptance: f64) -> f64 {
        let (tokens, seconds) = if length > 0 {
            let seconds = self.draft.at(length) + self.verify.at(length);
            (expected_tokens(length, acceptance), seconds)
        } else if self.plain.value > 0.0 {
            (1.0, self.plain.value)
        } else {
            // A verification of nothing is a step without a draft, where none was measured.
            (1.0, self.verify.at(0))
        };
        if seconds > 0.0 { tokens / seconds } else { 0.0 }
    }

    /// Whether a stretch without a draft should be measured (again).
    pub fn plain_is_due(&self, seconds_since: f64) -> bool {
        if self.plain.count == 0 {
            return self.verify.count > 2;
        }
        seconds_since > PLAIN_PROBE_SECONDS
    }
}
