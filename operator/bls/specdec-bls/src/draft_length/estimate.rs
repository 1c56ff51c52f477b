//! Running estimates in which old observations fade: an acceptance rate, a mean, a curve.

use std::collections::BTreeMap;

/// Each new observation of acceptance multiplies the weight of earlier ones by this factor.
const KEPT: f64 = 0.97;
/// The largest weight that all earlier durations together have in a mean. The new duration has the
/// rest of the weight.
const KEPT_SECONDS: f64 = 0.9;
/// Each new round multiplies the weight of earlier ones by this factor.
const KEPT_ROUNDS: f64 = 0.995;
/// A new duration moves an estimate of the lowest duration by this share of their difference: by
/// `RISE` if the new duration is above the estimate, by `FALL` if it is below. The estimate
/// therefore stays near the lowest durations, even if half of them are longer because of waits.
const RISE: f64 = 0.03;
const FALL: f64 = 0.3;
/// Seconds after which the weight of an observation of acceptance has fallen to 1/e (37 %). It
/// falls because the text changes.
const FADE_SECONDS: f64 = 4.0;
/// Weight of the prior, in draft tokens.
const PRIOR_WEIGHT: f64 = 4.0;
/// Acceptance before any observation.
const FIRST_GUESS: f64 = 0.7;

/// Probability that the target accepts a draft token whose predecessors it accepted.
///
/// A round that accepts n of g tokens counts as n successes, and as one failure if n < g. The
/// maximum likelihood estimate of a truncated geometric distribution is successes over trials.
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
        let failed = if accepted < drafted { 1.0 } else { 0.0 };
        self.add_expected(accepted as f64, failed, now);
    }

    /// Add a round with these expected numbers of successes and failures.
    pub fn add_expected(&mut self, accepted: f64, failed: f64, now: f64) {
        let kept = KEPT * self.faded(now);
        self.successes = kept * self.successes + accepted;
        self.trials = kept * self.trials + accepted + failed;
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

/// What rounds generate, and how long they take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    tokens: f64,
    seconds: f64,
}

impl Rounds {
    /// Add a round.
    pub fn add(&mut self, tokens: usize, seconds: f64) {
        self.tokens = KEPT_ROUNDS * self.tokens + tokens as f64;
        self.seconds = KEPT_ROUNDS * self.seconds + seconds;
    }

    /// Tokens a second; 0.0 without rounds.
    pub fn speed(&self) -> f64 {
        match self.seconds > 0.0 {
            true => self.tokens / self.seconds,
            false => 0.0,
        }
    }
}

/// For each token, the product of the chances up to its own: the chance that the target accepts the
/// token and all before it.
pub(super) fn survivals(chances: impl Iterator<Item = f64>) -> Vec<f64> {
    let products = chances.scan(1.0, |survival, chance| {
        *survival *= chance;
        Some(*survival)
    });
    products.collect()
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
        // A thread that wakes up late is no cost of the engine, so an outlier is limited.
        let most = match self.count < 3 {
            true => f64::INFINITY,
            false => 3.0 * self.value,
        };
        self.add_limited(value, most);
    }

    /// Add a value, or this limit if the value exceeds it.
    pub fn add_limited(&mut self, value: f64, most: f64) {
        self.count += 1;
        let share = (1.0 / self.count as f64).max(1.0 - KEPT_SECONDS);
        self.value += share * (value.min(most) - self.value);
    }

    /// Add a value to a mean that estimates the lowest values, such as the time without waits.
    pub fn add_to_lowest(&mut self, value: f64) {
        self.count += 1;
        let share = match value < self.value {
            _ if self.count == 1 => 1.0,
            true => FALL,
            false => RISE,
        };
        self.value += share * (value - self.value);
    }
}

/// Seconds of a verification as a function of its number of draft tokens.
///
/// The time of a verification has two parts. The step of the engine depends on the length. The wait
/// for that step or for other sequences does not. A round of an unusual length often waits longer,
/// because its sequence is not synchronized with the others. So the lengths are compared by their
/// lowest times, and the mean wait of all rounds is added to each.
#[derive(Clone, Debug, Default)]
pub struct VerificationSeconds {
    /// Lowest times.
    steps: BTreeMap<usize, Mean>,
    wait: Mean,
    /// Number of observations.
    pub count: usize,
}

impl VerificationSeconds {
    /// Whether this length was measured.
    pub fn knows(&self, length: usize) -> bool {
        self.steps.contains_key(&length)
    }

    /// Add a call.
    pub fn add(&mut self, length: usize, seconds: f64) {
        self.count += 1;
        self.steps.entry(length).or_default().add_to_lowest(seconds);
        let step = self.step(length);
        self.wait.add_limited((seconds - step).max(0.0), 2.0 * step);
    }

    /// Seconds expected for this many draft tokens; 0.0 when nothing is known.
    pub fn at(&self, length: usize) -> f64 {
        self.step(length) + self.wait.value
    }

    /// Seconds without waits. A step takes no longer for fewer tokens, and for more tokens at most
    /// proportionally longer.
    fn step(&self, length: usize) -> f64 {
        let tokens = |length: usize| length as f64 + 1.0;
        let bound = |(known, lowest): (&usize, &Mean)| {
            lowest.value * (tokens(length) / tokens(*known)).max(1.0)
        };
        let bounds = self.steps.iter().map(bound);
        let bound = bounds.fold(f64::INFINITY, f64::min);
        interpolate(&self.steps, length, |_, mean| mean.value).min(bound)
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
    /// A curve that goes through 0 at length 0 as long as only one length was measured: durations
    /// are then proportional to the length. The default curve is constant instead.
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
        interpolate(&self.means, length, |known, mean| {
            self.beside_single((known, mean), length)
        })
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

/// The value at a length between or beside the measured ones; 0.0 if there are none. `single` is
/// the value if only one length was measured.
fn interpolate(
    means: &BTreeMap<usize, Mean>,
    length: usize,
    single: impl Fn(&usize, &Mean) -> f64,
) -> f64 {
    if let Some(mean) = means.get(&length) {
        return mean.value;
    }
    let below = means.range(..length).next_back();
    let mut above = means.range(length..);
    match (below, above.next()) {
        (None, None) => 0.0,
        (Some(low), Some(high)) => line(low, high, length),
        // Outside the measured lengths: the line through the nearest two of them.
        (None, Some(low)) => match above.next() {
            Some(high) => line(low, high, length),
            None => single(low.0, low.1),
        },
        (Some(high), None) => match means.range(..high.0).next_back() {
            Some(low) => line(low, high, length),
            None => single(high.0, high.1),
        },
    }
}

/// The value at `length` on the line through two measured lengths.
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
