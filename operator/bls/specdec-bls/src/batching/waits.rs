//! Measures whether rows should wait for each other.
//!
//! Where the calls in flight of an engine share its steps, a call that starts during a step waits
//! for the step's end, and rounds are shorter if rows wait for each other. Where each call runs at
//! its own speed, the slowest call of a batch delays all sequences of the batch.
//!
//! The duration of a call does not show which kind an engine is: on a busy machine, calls delay
//! each other in both kinds. This module therefore measures the time of a round with waiting and
//! without it, and uses the faster way. From time to time it tries the other way again.

use std::time::Instant;

/// Rounds of each sequence after a change, before the time of a round is measured.
const SETTLING_ROUNDS: f64 = 2.0;
/// Rounds of each sequence whose time is measured.
const MEASURED_ROUNDS: f64 = 6.0;
/// A trial ends after fewer rounds if its rounds take longer than usual by this factor.
const CLEARLY_SLOWER: f64 = 1.15;
/// Least rounds of such a shortened trial: of each sequence, and of all sequences together.
const TRIAL_ROUNDS: f64 = 2.0;
const TRIAL_ROUNDS_OF_ALL: f64 = 12.0;
/// Most measurements of the faster way between two trials of the other one.
const MAX_INTERVAL: usize = 64;
/// A trial that confirms the faster way multiplies the number of measurements before the next trial
/// by this factor. A trial that contradicts it divides the number by this factor. If the faster way
/// changes, the number is 1 again.
const INTERVAL_FACTOR: usize = 8;
/// The median of this many last comparisons decides which way is faster. With three, one disturbed
/// comparison does not change the decision.
const COMPARISONS: usize = 3;

/// Whether rows wait for each other, so that one engine step serves many sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronization {
    /// Rows wait if measurements show that this makes rounds faster.
    #[default]
    Measured,
    Always,
    Never,
}

/// The decision whether rows wait, and the measurements for it.
pub struct Waits {
    synchronization: Synchronization,
    /// Whether waiting is the faster way, as far as is known.
    waiting_is_faster: bool,
    /// The other way is being tried.
    trying: bool,
    measurement: Measurement,
    /// Seconds of a round in the last measurement of the faster way.
    round_seconds: Option<f64>,
    /// Share of a round that waiting saved in the last comparisons; negative if it cost time.
    saved: Vec<f64>,
    /// Measurements of the faster way between two trials, and how many are left.
    interval: usize,
    left: usize,
    /// Rows that wait or are in flight, unchanged since `updated`. Each row belongs to a different
    /// sequence.
    rows: usize,
    updated: Option<Instant>,
}

/// Rounds, and the time that the sequences needed for them together.
#[derive(Default)]
struct Measurement {
    settled: bool,
    rounds: f64,
    seconds: f64,
}

impl Waits {
    pub fn new(synchronization: Synchronization) -> Self {
        Self {
            synchronization,
            waiting_is_faster: true,
            trying: false,
            measurement: Measurement::default(),
            round_seconds: None,
            saved: Vec::new(),
            interval: 1,
            left: 1,
            rows: 0,
            updated: None,
        }
    }

    /// Whether rows wait now.
    pub fn rows_wait(&self) -> bool {
        match self.synchronization {
            Synchronization::Measured => self.waiting_is_faster != self.trying,
            Synchronization::Always => true,
            Synchronization::Never => false,
        }
    }

    /// Set the number of rows that wait or are in flight from now on.
    pub fn set_rows(&mut self, rows: usize) {
        self.rows = rows;
    }

    /// Let time pass, in which the number of rows did not change.
    pub fn elapse(&mut self, now: Instant) {
        let seconds = self.updated.map_or(0.0, |from| (now - from).as_secs_f64());
        self.updated = Some(now);
        if self.rows > 1 {
            self.measurement.seconds += seconds * self.rows as f64;
        }
    }

    /// Count a verification that has its result. A single sequence has no row to wait for.
    pub fn round_completed(&mut self) {
        if self.rows < 2 {
            return;
        }
        let measurement = &mut self.measurement;
        measurement.rounds += 1.0;
        let rows = self.rows as f64;
        if !measurement.settled {
            if measurement.rounds >= SETTLING_ROUNDS * rows {
                *measurement = Measurement {
                    settled: true,
                    ..Measurement::default()
                };
            }
            return;
        }
        let (rounds, seconds) = (measurement.rounds, measurement.seconds);
        if rounds >= MEASURED_ROUNDS * rows || self.trial_is_slower() {
            self.measured(seconds / rounds);
        }
    }

    /// Count only a part of a round whose proposal was shortened, because it yields fewer tokens.
    /// `share` is the part that does not count.
    pub fn round_shortened(&mut self, share: f64) {
        self.measurement.rounds -= share;
    }

    /// Whether a trial has shown that its way is clearly the slower one.
    fn trial_is_slower(&self) -> bool {
        let Measurement {
            rounds, seconds, ..
        } = self.measurement;
        let enough = (TRIAL_ROUNDS * self.rows as f64).max(TRIAL_ROUNDS_OF_ALL);
        let usual = self.round_seconds.unwrap_or(f64::INFINITY);
        self.trying && rounds >= enough && seconds > CLEARLY_SLOWER * usual * rounds
    }

    /// Use the seconds of a round in the measurement that has ended, and begin the next one.
    fn measured(&mut self, seconds: f64) {
        let before = self.rows_wait();
        if self.trying {
            self.compare(seconds);
            self.trying = false;
        } else {
            self.round_seconds = Some(seconds);
            self.left = self.left.saturating_sub(1);
            self.trying = self.left == 0;
        }
        self.measurement = Measurement {
            settled: self.rows_wait() == before,
            ..Measurement::default()
        };
    }

    /// Compare the trial with the measurement before it.
    fn compare(&mut self, trial: f64) {
        let Some(usual) = self.round_seconds else {
            return;
        };
        let (waiting, not_waiting) = match self.waiting_is_faster {
            true => (usual, trial),
            false => (trial, usual),
        };
        let saved = (not_waiting - waiting) / not_waiting.max(waiting);
        self.saved.push(saved);
        if self.saved.len() > COMPARISONS {
            self.saved.remove(0);
        }
        let waiting_is_faster = median(&self.saved) > 0.0;
        self.interval = match (
            (saved > 0.0) == waiting_is_faster,
            waiting_is_faster == self.waiting_is_faster,
        ) {
            (true, true) => (INTERVAL_FACTOR * self.interval).min(MAX_INTERVAL),
            // This one comparison may be the disturbed one.
            (false, true) => (self.interval / INTERVAL_FACTOR).max(1),
            (_, false) => 1,
        };
        self.waiting_is_faster = waiting_is_faster;
        self.left = self.interval;
    }
}

/// The median of at least one value; of two values, their mean.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    (middle((sorted.len().max(1) - 1) / 2) + middle(sorted.len() / 2)) / 2.0
}
