//! A policy with random choices: rounds of any length and target-only runs, in any order.

use std::sync::{Arc, Mutex};

use triton_specdec::draft_length::{Alternative, Choice, LengthPolicy, Next};

use super::numbers::Numbers;

/// The sums of what sequences reported to the policy.
#[derive(Default)]
pub struct Reports {
    pub closed: usize,
    pub accepted: usize,
    pub target_only: usize,
}

pub struct ChangingPolicy {
    numbers: Mutex<Numbers>,
    reports: Arc<Mutex<Reports>>,
}

impl ChangingPolicy {
    pub fn new(seed: u32) -> (Box<Self>, Arc<Mutex<Reports>>) {
        let reports = Arc::new(Mutex::new(Reports::default()));
        let policy = Self {
            numbers: Mutex::new(Numbers::new(seed)),
            reports: Arc::clone(&reports),
        };
        (Box::new(policy), reports)
    }
}

impl LengthPolicy for ChangingPolicy {
    fn choose(&mut self) -> Choice {
        let index = self.numbers.lock().unwrap().between(0, 4);
        Choice {
            length: [0, 0, 1, 2, 5][index],
            most: 8,
            settled: None,
        }
    }
    fn needs_log_probs(&self) -> bool {
        self.numbers.lock().unwrap().between(0, 1) > 0
    }
    fn proposed(&mut self, tokens: usize, seconds: f64, _: &[f32]) -> Next {
        assert!(tokens > 0 && seconds > 0.0);
        let mut numbers = self.numbers.lock().unwrap();
        match numbers.between(0, 2) {
            0 => Next::Draft(numbers.between(1, 3)),
            1 => Next::Verify(numbers.between(0, tokens)),
            _ => Next::Verify(usize::MAX),
        }
    }
    fn target_only_tokens(&self) -> usize {
        self.numbers.lock().unwrap().between(1, 4)
    }
    fn round_completed(
        &mut self,
        drafted: usize,
        accepted: usize,
        draft_seconds: f64,
        verify_seconds: f64,
    ) {
        assert!(accepted <= drafted && draft_seconds >= 0.0 && verify_seconds > 0.0);
        assert!(drafted == 0 || draft_seconds > 0.0);
        self.reports.lock().unwrap().accepted += accepted;
    }
    fn target_only_completed(&mut self, tokens: usize, seconds: f64) {
        assert!(seconds > 0.0);
        self.reports.lock().unwrap().target_only += tokens;
    }
    fn can_afford_streams(&self) -> bool {
        self.numbers.lock().unwrap().between(0, 2) > 0
    }
    fn stream_restarted(&mut self, seconds: f64) {
        assert!(seconds > 0.0);
    }
    fn choose_lookup(&mut self, classes: &[usize], _: Alternative) -> usize {
        self.numbers.lock().unwrap().between(0, classes.len())
    }
    fn lookup_compared(&mut self, classes: &[usize], accepted: usize) {
        assert!(accepted <= classes.len() && classes.len() <= accepted + 1);
    }
    fn lookup_completed(&mut self, classes: &[usize], accepted: usize, verify_seconds: f64) {
        assert!(accepted <= classes.len() && verify_seconds > 0.0);
        self.reports.lock().unwrap().accepted += accepted;
    }
    fn close(&mut self) {
        self.reports.lock().unwrap().closed += 1;
    }
}
