//! A policy that changes its mind all the time: rounds of any length, and plain stretches.

use std::sync::{Arc, Mutex};

use triton_specdec::policy::Lengths;

use super::numbers::Numbers;

/// What it was told.
#[derive(Default)]
pub struct Told {
    pub closed: usize,
    pub accepted: usize,
    pub plain: usize,
}

pub struct Restless {
    /// Tokens of a stretch are asked for without changing anything.
    numbers: Mutex<Numbers>,
    told: Arc<Mutex<Told>>,
}

impl Restless {
    pub fn new(seed: u32) -> (Box<Self>, Arc<Mutex<Told>>) {
        let told = Arc::new(Mutex::new(Told::default()));
        let numbers = Mutex::new(Numbers::new(seed));
        let made = Self {
            numbers,
            told: Arc::clone(&told),
        };
        (Box::new(made), told)
    }
}

impl Lengths for Restless {
    fn length(&mut self) -> usize {
        [0, 0, 1, 2, 5][self.numbers.lock().unwrap().between(0, 4)]
    }
    fn plain_tokens(&self) -> usize {
        self.numbers.lock().unwrap().between(1, 4)
    }
    fn round(&mut self, drafted: usize, accepted: usize, draft_seconds: f64, seconds: f64) {
        assert!(accepted <= drafted && draft_seconds >= 0.0 && seconds > 0.0);
        assert!(drafted == 0 || draft_seconds > 0.0);
        self.told.lock().unwrap().accepted += accepted;
    }
    fn plain(&mut self, tokens: usize, seconds: f64) {
        assert!(seconds > 0.0);
        self.told.lock().unwrap().plain += tokens;
    }
    fn close(&mut self) {
        self.told.lock().unwrap().closed += 1;
    }
}
