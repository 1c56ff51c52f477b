//! Running estimates in which old observations fade: an acceptance rate, a mean, a curve.

use std::collections::BTreeMap;

/// Each new observation of acceptance multiplies the weight of earlier ones by this factor.
const KEPT: f64 = 0.97;
/// The most that all earlier durations together weigh in a mean; a new one weighs the rest.
const KEPT_SECONDS: f64 = 0.9;
/// Seconds after which the weight of an observation of acceptance has fallen to 1/e (37 %). It
/// falls because the text changes.
const FADE_SECONDS: f64 = 4.0;
/// Weight of the prior, in draft tokens.
const PRIOR_WEIGHT: f64 = 4.0;
/// Acceptance before any observation.
const FIRST_GUESS: f64 = 0.7;

/// Probability that the target accepts a draft token whose predecessors it accepted.
///
/// A round that accepts n of g tokens is n successes, and one failure where n < g: the maximum
/// likelihood estimate of a truncated geometric distribution is successes over trials.
#[derive(Clone, Debug)]
pub struct Acceptance {
    /// The estimate before any observation.
    guess: f64,
    successes: f64,
    trials: f64,
    updated: Option<f64>,
}

impl Default for Acceptance {
    fn default() -> Self {
        Self::guessed(FIRST_GUESS)
    }
}

impl Acceptance {
    /// An estimate that begins with this value.
    pub fn guessed(guess: f64) -> Self {
        Self {
            guess,
            successes: 0.0,
            trials: 0.0,
            updated: None,
        }
    }

    /// Add a round; `now` in seconds.
    pub fn add(&mut self, drafted: usize, accepted: usize, now: f64) {
        let kept = KEPT * self.faded(now);
        let failed = if accepted < drafted { 1.0 } else { 0.0 };
        self.successes = kept * self.successes + accepted as f64;
        self.trials = kept * self.trials + accepted as f64 + failed;
        self.updated = Some(now);
    }

    /// The estimate, in (0, 1). With few or old observations it is near `prior`.
    pub fn value(&self, now: f64, prior: Option<&Acceptance>) -> f64 {
        let guess = prior.map_or(self.guess, |prior| prior.value(now, None));
        let kept = self.faded(now);
        let successes = kept * self.successes + PRIOR_WEIGHT * guess;
        successes / (kept * self.trials + PRIOR_WEIGHT)
    }

    /// The factor by which age has reduced the weight of the observations.
    fn faded(&self, now: f64) -> f64 {
        self.updated
            .map_or(1.0, |updated| ((updated - now) / FADE_SECONDS).exp())
    }
}

/// A mean in which new values weigh more.
#[derive(Clone, Debug, Default)]
pub struct Mean {
    /// 0.0 before the first value.
    pub value: f64,
    /// Number of values.
    pub count: usize,
}

impl Mean {
    /// Add a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let share = (1.0 / self.count as f64).max(1.0 - KEPT_SECONDS);
        // A thread that wakes up late is no cost of the engine, so an outlier is limited.
        let value = if self.count > 3 {
            value.min(3.0 * self.value)
        } else {
            value
        };
        self.value += share * (value - self.value);
    }
}

/// Seconds of a call as a function of its number of draft tokens: a mean for each measured length,
/// and straight lines between them.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    through_zero: bool,
    means: BTreeMap<usize, Mean>,
    /// Number of observations.
    pub count: usize,
}

impl Curve {
    /// A curve that is 0 at length 0. With a single measured length, durations are proportional to
    /// the length; the default curve is constant instead.
    pub fn through_zero() -> Self {
        Self {
            through_zero: true,
            ..Self::default()
        }
    }

    /// Whether this length was measured.
    pub fn knows(&self, length: usize) -> bool {
        self.means.contains_key(&length)
    }

    /// Add a call.
    pub fn add(&mut self, length: usize, seconds: f64) {
        self.count += 1;
        self.means.entry(length).or_default().add(seconds);
    }

    /// Seconds expected for this many draft tokens; 0.0 when nothing is known.
    pub fn at(&self, length: usize) -> f64 {
        if let Some(mean) = self.means.get(&length) {
            return mean.value;
        }
        let below = self.means.range(..length).next_back();
        let mut above = self.means.range(length..);
        match (below, above.next()) {
            (None, None) => 0.0,
            (Some(low), Some(high)) => line(low, high, length),
            // Outside the measured lengths: the line through the nearest two of them.
            (None, Some(low)) => match above.next() {
                Some(high) => line(low, high, length),
                None => self.beside_single(low, length),
            },
            (Some(high), None) => match self.means.range(..high.0).next_back() {
                Some(low) => line(low, high, length),
                None => self.beside_single(high, length),
            },
        }
    }

    /// Seconds at `length`, if only the length `known` was measured.
    fn beside_single(&self, (&known, mean): (&usize, &Mean), length: usize) -> f64 {
        if self.through_zero && known > 0 {
            mean.value * length as f64 / known as f64
        } else {
            mean.value
        }
    }
}

/// The line through two measured lengths, at another one.
fn line(low: (&usize, &Mean), high: (&usize, &Mean), length: usize) -> f64 {
    let (first, second) = (low.1.value, high.1.value);
    let (left, right, at) = (*low.0 as f64, *high.0 as f64, length as f64);
    let mut slope = (second - first) / (right - left);
    if !(left < at && at < right) {
        // Longer calls never take less time, whatever the noise of the measurements.
        slope = slope.max(0.0);
    }
    let seconds = first + slope * (at - left);
    // A line through two lengths may fall under zero before it reaches length 0.
    if seconds > 0.0 {
        seconds
    } else {
        first.min(second)
    }
}
