//! Proposals of the draft model that the policy cuts by their log probabilities, against a
//! simulated draft whose certainty varies along a text.

use std::sync::{Arc, Mutex};

use simulation::numbers::Numbers;
use simulation::varying_text::Text;
use triton_specdec::draft_length::{AdaptivePolicy, AdaptiveSequence, LengthPolicy, Next};

#[allow(dead_code)]
mod simulation;

const MOST: usize = 16;
/// Seconds of a step of the target and of the draft, and what a call takes in addition.
const TARGET: f64 = 0.020;
const DRAFT: f64 = 0.002;
const CALL: f64 = 0.0005;

/// How well the log probabilities of the draft predict acceptance.
#[derive(Clone, Copy, PartialEq)]
enum LogProbs {
    /// The log probabilities order the tokens by their acceptance. The probability itself is the
    /// square of the acceptance, so it is too low.
    Informative,
    /// Every token has the probability 1. An engine that normalizes within a top-k of 1 reports
    /// this.
    AllOnes,
}

struct Run {
    now: Arc<Mutex<f64>>,
    text: Text,
    log_probs: LogProbs,
    position: usize,
    numbers: Numbers,
}

impl Run {
    fn new(log_probs: LogProbs) -> (Self, AdaptivePolicy) {
        let now = Arc::new(Mutex::new(100.0));
        let clock = Arc::clone(&now);
        let policy = AdaptivePolicy::new(0, MOST, 4, Box::new(move || *clock.lock().unwrap()));
        let run = Self {
            now,
            text: Text::new(1),
            log_probs,
            position: 0,
            numbers: Numbers::new(2),
        };
        (run, policy)
    }

    fn work(&mut self, seconds: f64) -> f64 {
        let seconds = seconds * self.numbers.uniform(0.97, 1.03);
        *self.now.lock().unwrap() += seconds;
        seconds
    }

    /// Tokens a second over so many rounds.
    fn speed(&mut self, rounds: usize, mut round: impl FnMut(&mut Self)) -> f64 {
        let (started, before) = (*self.now.lock().unwrap(), self.position);
        (0..rounds).for_each(|_| round(self));
        (self.position - before) as f64 / (*self.now.lock().unwrap() - started)
    }

    /// Verify this many draft tokens. Returns how many of them the target accepts, and the seconds
    /// of the verification.
    fn verify(&mut self, drafted: usize) -> (usize, f64) {
        let mut accepted = 0;
        while accepted < drafted {
            let chance = self.text.chance(self.position + accepted);
            if self.numbers.random() >= chance {
                break;
            }
            accepted += 1;
        }
        self.position += accepted + 1;
        (accepted, self.work(TARGET + CALL))
    }

    fn fixed(&mut self, length: usize) {
        self.work(CALL + DRAFT * length as f64);
        self.verify(length);
    }

    fn adaptive(&mut self, sequence: &mut AdaptiveSequence) {
        let choice = sequence.choose();
        if choice.length == 0 {
            let tokens = sequence.target_only_tokens();
            let seconds = self.work(TARGET * tokens as f64 + CALL);
            self.position += tokens;
            return sequence.target_only_completed(tokens, seconds);
        }
        assert!(choice.most <= MOST && choice.length <= choice.most);
        let (mut log_probs, mut drafting, mut more) = (Vec::new(), 0.0, choice.length);
        let drafted = loop {
            for _ in 0..more {
                let chance = self.text.chance(self.position + log_probs.len());
                log_probs.push(match self.log_probs {
                    LogProbs::Informative => chance.powi(2).ln() as f32,
                    LogProbs::AllOnes => 0.0,
                });
            }
            let seconds = self.work(CALL + DRAFT * more as f64);
            drafting += seconds;
            match sequence.proposed(more, seconds, &log_probs) {
                Next::Draft(next) if log_probs.len() < choice.most => {
                    more = next.min(choice.most - log_probs.len());
                }
                Next::Draft(_) => break log_probs.len(),
                Next::Verify(most) => break log_probs.len().min(most),
            }
        };
        let (accepted, verifying) = self.verify(drafted);
        sequence.round_completed(drafted, accepted, drafting, verifying);
    }
}

/// Tokens a second of the policy, relative to those of the best fixed length.
fn of_best_fixed(log_probs: LogProbs, cuts: bool) -> f64 {
    let fixed = (1..=MOST).map(|length| {
        let (mut run, _) = Run::new(log_probs);
        run.speed(4000, |run| run.fixed(length))
    });
    let (mut run, policy) = Run::new(log_probs);
    let mut sequence = match cuts {
        true => policy.cutting_sequence(),
        false => policy.sequence(),
    };
    run.speed(1000, |run| run.adaptive(&mut sequence));
    run.speed(4000, |run| run.adaptive(&mut sequence)) / fixed.fold(0.0, f64::max)
}

#[test]
fn cut_proposals_are_faster_than_the_best_fixed_length() {
    let share = of_best_fixed(LogProbs::Informative, true);
    assert!(share >= 1.05, "{share}");
}

#[test]
fn log_probs_that_predict_nothing_cost_next_to_nothing() {
    let (cut, whole) = (
        of_best_fixed(LogProbs::AllOnes, true),
        of_best_fixed(LogProbs::AllOnes, false),
    );
    assert!(cut >= 0.98 * whole, "{cut} {whole}");
}

/// A round whose draft returns these log probabilities for each token; whether it may be extended.
fn round(sequence: &mut AdaptiveSequence, log_prob: Option<f32>) -> bool {
    let choice = sequence.choose();
    let log_probs: Vec<f32> = log_prob.into_iter().cycle().take(choice.length).collect();
    sequence.proposed(choice.length, 0.01, &log_probs);
    sequence.round_completed(choice.length, choice.length, 0.01, 0.02);
    choice.most > choice.length
}

#[test]
fn drafts_without_log_probs_are_whole() {
    let policy = AdaptivePolicy::new(1, MOST, 6, Box::new(|| 0.0));
    let mut sequence = policy.cutting_sequence();
    assert!((0..200).all(|_| !round(&mut sequence, None)));
    assert!(!sequence.needs_log_probs());
}

#[test]
fn proposals_are_extended_only_while_one_sequence_is_in_flight() {
    let policy = AdaptivePolicy::new(1, MOST, 6, Box::new(|| 0.0));
    let mut sequence = policy.cutting_sequence();
    assert!((0..200).any(|_| round(&mut sequence, Some(-0.1))));
    assert!(sequence.needs_log_probs());
    let other = policy.cutting_sequence();
    assert!((0..200).all(|_| !round(&mut sequence, Some(-0.1))));
    // Nothing has shown that the two share verifications.
    assert!(!sequence.needs_log_probs());
    drop(other);
    assert!((0..200).any(|_| round(&mut sequence, Some(-0.1))));
}

#[test]
fn sequences_that_may_not_cut_request_no_log_probs() {
    let policy = AdaptivePolicy::new(1, MOST, 6, Box::new(|| 0.0));
    let mut sequence = policy.sequence();
    assert!((0..200).all(|_| !round(&mut sequence, Some(-0.1)) && !sequence.needs_log_probs()));
}
