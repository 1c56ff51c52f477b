//! Simulated engines whose durations grow with their load, for the adaptive draft length policy.

use std::sync::{Arc, Mutex};

use triton_specdec::draft_length::{
    AdaptivePolicy, AdaptiveSequence, LengthPolicy, expected_tokens,
};

use self::numbers::Numbers;

pub mod numbers;
#[allow(dead_code)]
pub mod varying_text;

/// Largest draft length.
pub const MOST: usize = 8;

/// The durations of engine calls. A step takes the same time for up to `knee` tokens, and then a
/// time proportional to its tokens.
#[derive(Clone, Copy, Debug)]
pub struct Engines {
    /// Sequences in flight.
    pub batch: usize,
    /// Seconds of a step of the target, and of the draft, up to `knee` tokens.
    pub step: f64,
    pub draft_step: f64,
    /// Seconds that every call takes in addition.
    pub overhead: f64,
    pub knee: f64,
    /// Probability that the target accepts a draft token.
    pub acceptance: f64,
}

impl Default for Engines {
    fn default() -> Self {
        Self {
            batch: 1,
            step: 0.02,
            draft_step: 0.002,
            overhead: 0.0005,
            knee: 64.0,
            acceptance: 0.8,
        }
    }
}

impl Engines {
    fn load_factor(&self, tokens: usize) -> f64 {
        (tokens as f64 / self.knee).max(1.0)
    }

    fn verify(&self, length: usize) -> f64 {
        self.step * self.load_factor(self.batch * (length + 1)) + self.overhead
    }

    fn draft(&self, length: usize) -> f64 {
        length as f64 * self.draft_step * self.load_factor(self.batch) + self.overhead
    }

    /// Seconds of a token without a draft.
    pub fn target_only(&self) -> f64 {
        self.step * self.load_factor(self.batch)
    }

    fn speed(&self, length: usize) -> f64 {
        if length == 0 {
            return 1.0 / self.target_only();
        }
        expected_tokens(length, self.acceptance) / (self.draft(length) + self.verify(length))
    }

    /// Tokens a second of the best fixed length.
    pub fn best(&self) -> f64 {
        (0..=MOST)
            .map(|length| self.speed(length))
            .fold(0.0, f64::max)
    }
}

/// Combinations of load, acceptance and speed that a server may have.
pub fn grid() -> Vec<Engines> {
    let mut grid = Vec::new();
    for batch in [1, 8, 16, 64] {
        for acceptance in [0.05, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97] {
            for (step, share) in [(0.02, 0.1), (0.02, 0.3), (0.005, 0.1)] {
                grid.push(Engines {
                    batch,
                    acceptance,
                    step,
                    draft_step: step * share,
                    ..Engines::default()
                });
            }
        }
    }
    grid
}

/// Many sequences in flight that all do the same, so only one of them is simulated.
pub struct Run {
    pub engines: Engines,
    now: Arc<Mutex<f64>>,
    changes: usize,
    numbers: Numbers,
    policy: AdaptivePolicy,
    sequences: Vec<AdaptiveSequence>,
}

impl Run {
    pub fn new(engines: Engines) -> Self {
        let now = Arc::new(Mutex::new(100.0));
        let clock = Arc::clone(&now);
        let policy = AdaptivePolicy::new(0, MOST, 4, Box::new(move || *clock.lock().unwrap()));
        let mut run = Self {
            engines,
            now,
            changes: 0,
            numbers: Numbers::new(1),
            policy,
            sequences: Vec::new(),
        };
        run.load(engines.batch);
        run
    }

    /// Set the number of sequences in flight.
    pub fn load(&mut self, batch: usize) {
        self.sequences.truncate(batch);
        while self.sequences.len() < batch {
            self.sequences.push(self.policy.sequence());
        }
        self.engines.batch = batch;
    }

    pub fn now(&self) -> f64 {
        *self.now.lock().unwrap()
    }

    /// How often the policy settled on another length.
    pub fn changes(&self) -> usize {
        self.changes
    }

    /// Tokens a second over so many rounds or target-only runs.
    pub fn run(&mut self, rounds: usize) -> f64 {
        let started = self.now();
        let tokens: f64 = (0..rounds).map(|_| self.round()).sum();
        tokens / (self.now() - started)
    }

    fn round(&mut self) -> f64 {
        let sequence = &mut self.sequences[0];
        let choice = sequence.choose();
        let length = choice.length;
        self.changes += usize::from(choice.settled.is_some());
        let noise = self.numbers.uniform(0.95, 1.05);
        if length == 0 {
            let count = sequence.target_only_tokens();
            let seconds =
                noise * (count as f64 * self.engines.target_only() + self.engines.overhead);
            *self.now.lock().unwrap() += seconds;
            sequence.target_only_completed(count, seconds);
            return count as f64;
        }
        let mut accepted = 0;
        while accepted < length && self.numbers.random() < self.engines.acceptance {
            accepted += 1;
        }
        let draft = noise * self.engines.draft(length);
        let verify = noise * self.engines.verify(length);
        *self.now.lock().unwrap() += draft + verify;
        sequence.proposed(length, draft, &[]);
        sequence.round_completed(length, accepted, draft, verify);
        // The expected number of tokens, so that the random acceptance adds no noise.
        expected_tokens(length, self.engines.acceptance)
    }
}

/// Speed relative to the best fixed length, from the twentieth round after a change of load.
pub fn after_load_steps() -> Vec<f64> {
    let after = |(before, after)| {
        let mut run = Run::new(Engines {
            batch: before,
            ..Engines::default()
        });
        run.run(400);
        run.load(after);
        run.run(20);
        run.run(300) / run.engines.best()
    };
    [(1, 64), (64, 1), (4, 32)].map(after).to_vec()
}

/// Speed relative to the best fixed length, from five seconds after a change of the acceptance.
pub fn after_other_texts() -> Vec<f64> {
    let after = |(before, after)| {
        let mut run = Run::new(Engines {
            batch: 8,
            acceptance: before,
            ..Engines::default()
        });
        run.run(400);
        run.engines.acceptance = after;
        let changed = run.now();
        while run.now() - changed < 5.0 {
            run.run(1);
        }
        run.run(300) / run.engines.best()
    };
    [(0.9, 0.2), (0.2, 0.9), (0.0, 0.8)].map(after).to_vec()
}

/// Changes of the draft length a second, of a policy under a constant load.
pub fn changes_a_second() -> Vec<f64> {
    let rate = |acceptance| {
        let mut run = Run::new(Engines {
            batch: 8,
            acceptance,
            ..Engines::default()
        });
        run.run(300);
        let (started, before) = (run.now(), run.changes());
        run.run(1500);
        (run.changes() - before) as f64 / (run.now() - started)
    };
    [0.2, 0.6, 0.8, 0.95].map(rate).to_vec()
}
