//! Simulated engines whose costs follow their load, under the adaptive draft length.

use std::sync::{Arc, Mutex};

use triton_specdec::policy::{AdaptiveAnswer, AdaptiveLength, Lengths, expected_tokens};

use self::numbers::Numbers;

pub mod numbers;

pub const MOST: usize = 8;

/// Seconds of calls: flat until `knee` tokens are in a step, then proportional to them.
#[derive(Clone, Copy, Debug)]
pub struct Engines {
    pub batch: usize,
    pub step: f64,
    pub draft_step: f64,
    pub overhead: f64,
    pub knee: f64,
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
    fn crowd(&self, tokens: usize) -> f64 {
        (tokens as f64 / self.knee).max(1.0)
    }

    fn verify(&self, length: usize) -> f64 {
        self.step * self.crowd(self.batch * (length + 1)) + self.overhead
    }

    fn draft(&self, length: usize) -> f64 {
        length as f64 * self.draft_step * self.crowd(self.batch) + self.overhead
    }

    /// Seconds of a token without a draft.
    pub fn plain(&self) -> f64 {
        self.step * self.crowd(self.batch)
    }

    fn speed(&self, length: usize) -> f64 {
        if length == 0 {
            return 1.0 / self.plain();
        }
        expected_tokens(length, self.acceptance) / (self.draft(length) + self.verify(length))
    }

    /// Tokens a second of the best fixed length.
    pub fn best(&self) -> f64 {
        (0..=MOST).map(|one| self.speed(one)).fold(0.0, f64::max)
    }
}

/// Loads and texts that a server may meet.
pub fn grid() -> Vec<Engines> {
    let mut found = Vec::new();
    for batch in [1, 8, 16, 64] {
        for acceptance in [0.05, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97] {
            for (step, share) in [(0.02, 0.1), (0.02, 0.3), (0.005, 0.1)] {
                found.push(Engines {
                    batch,
                    acceptance,
                    step,
                    draft_step: step * share,
                    ..Engines::default()
                });
            }
        }
    }
    found
}

/// Many answers in flight, of which one is followed: all of them do the same.
pub struct Run {
    pub engines: Engines,
    now: Arc<Mutex<f64>>,
    told: Arc<Mutex<Vec<usize>>>,
    numbers: Numbers,
    server: AdaptiveLength,
    answers: Vec<AdaptiveAnswer>,
}

impl Run {
    pub fn new(engines: Engines) -> Self {
        let now = Arc::new(Mutex::new(100.0));
        let told = Arc::new(Mutex::new(Vec::new()));
        let (clock, ear) = (Arc::clone(&now), Arc::clone(&told));
        let server = AdaptiveLength::new(
            0,
            MOST,
            4,
            Box::new(move |length| ear.lock().unwrap().push(length)),
            Box::new(move || *clock.lock().unwrap()),
        );
        let mut run = Self {
            engines,
            now,
            told,
            numbers: Numbers::new(1),
            server,
            answers: Vec::new(),
        };
        run.load(engines.batch);
        run
    }

    /// So many answers in flight from now on.
    pub fn load(&mut self, batch: usize) {
        self.answers.truncate(batch);
        while self.answers.len() < batch {
            self.answers.push(self.server.answer());
        }
        self.engines.batch = batch;
    }

    pub fn now(&self) -> f64 {
        *self.now.lock().unwrap()
    }

    /// How often a length was settled on.
    pub fn changes(&self) -> usize {
        self.told.lock().unwrap().len()
    }

    /// Tokens a second over so many rounds or stretches.
    pub fn go(&mut self, rounds: usize) -> f64 {
        let begun = self.now();
        let tokens: f64 = (0..rounds).map(|_| self.round()).sum();
        tokens / (self.now() - begun)
    }

    fn round(&mut self) -> f64 {
        let answer = &mut self.answers[0];
        let length = answer.length();
        let noise = self.numbers.uniform(0.95, 1.05);
        if length == 0 {
            let count = answer.plain_tokens();
            let seconds = noise * (count as f64 * self.engines.plain() + self.engines.overhead);
            *self.now.lock().unwrap() += seconds;
            answer.plain(count, seconds);
            return count as f64;
        }
        let mut accepted = 0;
        while accepted < length && self.numbers.random() < self.engines.acceptance {
            accepted += 1;
        }
        let draft = noise * self.engines.draft(length);
        let verify = noise * self.engines.verify(length);
        *self.now.lock().unwrap() += draft + verify;
        answer.round(length, accepted, draft, verify);
        // What the round gives on average: the policy is judged, not its luck.
        expected_tokens(length, self.engines.acceptance)
    }
}

/// Shares of the best fixed length's speed, from twenty rounds after other numbers of answers on.
pub fn after_load_steps() -> Vec<f64> {
    let after = |(before, after)| {
        let mut run = Run::new(Engines {
            batch: before,
            ..Engines::default()
        });
        run.go(400);
        run.load(after);
        run.go(20);
        run.go(300) / run.engines.best()
    };
    [(1, 64), (64, 1), (4, 32)].map(after).to_vec()
}

/// The same from five seconds after another share of accepted tokens on.
pub fn after_other_texts() -> Vec<f64> {
    let after = |(before, after)| {
        let mut run = Run::new(Engines {
            batch: 8,
            acceptance: before,
            ..Engines::default()
        });
        run.go(400);
        run.engines.acceptance = after;
        let changed = run.now();
        while run.now() - changed < 5.0 {
            run.go(1);
        }
        run.go(300) / run.engines.best()
    };
    [(0.9, 0.2), (0.2, 0.9), (0.0, 0.8)].map(after).to_vec()
}

/// How often a settled policy settles on another length.
pub fn changes_a_second() -> Vec<f64> {
    let rate = |acceptance| {
        let mut run = Run::new(Engines {
            batch: 8,
            acceptance,
            ..Engines::default()
        });
        run.go(300);
        let (begun, before) = (run.now(), run.changes());
        run.go(1500);
        (run.changes() - before) as f64 / (run.now() - begun)
    };
    [0.2, 0.6, 0.8, 0.95].map(rate).to_vec()
}
