//! The adaptive policy of sequences that share each step of the target: they draft equally many
//! tokens, and the likeliest ones are verified.

use std::sync::{Arc, Mutex};

use simulation::numbers::Numbers;
use simulation::varying_text::Text;
use triton_specdec::batching::Verified;
use triton_specdec::draft_length::{AdaptivePolicy, AdaptiveSequence, LengthPolicy, Next};

#[allow(dead_code)]
mod simulation;

const MOST: usize = 16;
/// Seconds of a step of the target and of the draft, and what a call takes in addition.
const TARGET: f64 = 0.020;
const DRAFT: f64 = 0.002;
const CALL: f64 = 0.0005;

/// Sequences that share each step of the target, which takes longer for more draft tokens.
struct Batch {
    now: Arc<Mutex<f64>>,
    numbers: Numbers,
    /// Additional seconds of the step for each draft token in it.
    token_seconds: f64,
    /// The text of each sequence, and its position there.
    texts: Vec<(Text, usize)>,
}

impl Batch {
    fn new(sequences: u32, token_seconds: f64) -> Self {
        Self {
            now: Arc::new(Mutex::new(100.0)),
            numbers: Numbers::new(2),
            token_seconds,
            texts: (1..=sequences).map(|seed| (Text::new(seed), 0)).collect(),
        }
    }

    /// Tokens a second over 2500 rounds. The 500 rounds before them do not count.
    fn speed(&mut self, mut round: impl FnMut(&mut Self)) -> f64 {
        (0..500).for_each(|_| round(self));
        let generated = |batch: &Self| batch.texts.iter().map(|text| text.1).sum::<usize>();
        let (started, before) = (*self.now.lock().unwrap(), generated(self));
        (0..2500).for_each(|_| round(self));
        (generated(self) - before) as f64 / (*self.now.lock().unwrap() - started)
    }

    fn log_probs(&mut self, sequence: usize, length: usize) -> Vec<f32> {
        let (text, position) = &mut self.texts[sequence];
        let log_prob = |index| text.chance(*position + index).powi(2).ln() as f32;
        (0..length).map(log_prob).collect()
    }

    /// Verify so many draft tokens of each sequence; how many the target accepts, and the seconds.
    fn verify(&mut self, drafted: &[usize]) -> (Vec<usize>, f64) {
        let total: usize = drafted.iter().sum();
        let seconds = TARGET + CALL + self.token_seconds * total as f64;
        let seconds = seconds * self.numbers.uniform(0.97, 1.03);
        *self.now.lock().unwrap() += seconds;
        let accept = |((text, position), drafted): (&mut (Text, usize), &usize)| {
            let mut accepted = 0;
            while accepted < *drafted && self.numbers.random() < text.chance(*position + accepted) {
                accepted += 1;
            }
            *position += accepted + 1;
            accepted
        };
        let accepted = self.texts.iter_mut().zip(drafted).map(accept).collect();
        (accepted, seconds)
    }

    fn fixed(&mut self, length: usize) {
        *self.now.lock().unwrap() += call_seconds(length);
        self.verify(&vec![length; self.texts.len()]);
    }

    fn adaptive(&mut self, policy: &AdaptivePolicy, sequences: &mut [AdaptiveSequence]) {
        let lengths: Vec<usize> = sequences.iter_mut().map(|it| it.choose().length).collect();
        let drafting = call_seconds(lengths.iter().copied().max().unwrap());
        *self.now.lock().unwrap() += drafting;
        let mut drafted = Vec::new();
        for (index, length) in lengths.iter().copied().enumerate() {
            let log_probs = self.log_probs(index, length);
            drafted.push(match length {
                0 => 0,
                _ => match sequences[index].proposed(length, call_seconds(length), &log_probs) {
                    Next::Verify(most) => most.min(length),
                    Next::Draft(_) => panic!("an extended proposal of a shared verification"),
                },
            });
        }
        let (accepted, verifying) = self.verify(&drafted);
        policy.batch_verified(Verified {
            draft_tokens: drafted.iter().sum(),
            seconds: verifying,
            synchronized: true,
        });
        for (index, sequence) in sequences.iter_mut().enumerate() {
            let own = call_seconds(lengths[index]);
            // A sequence with a short proposal waits for the others.
            let waited = drafting - own;
            match lengths[index] {
                0 => sequence.target_only_completed(1, verifying),
                _ => sequence.round_completed(
                    drafted[index],
                    accepted[index],
                    own,
                    waited + verifying,
                ),
            }
        }
    }
}

fn call_seconds(draft_tokens: usize) -> f64 {
    CALL + DRAFT * draft_tokens as f64
}

/// Tokens a second of sequences whose proposals may be cut, relative to sequences whose proposals
/// are whole, and to the best fixed length.
fn of_whole_and_of_best_fixed(sequences: u32, token_seconds: f64) -> (f64, f64) {
    let adaptive = |cuts: bool| {
        let mut batch = Batch::new(sequences, token_seconds);
        let clock = Arc::clone(&batch.now);
        let policy = AdaptivePolicy::new(0, MOST, 4, Box::new(move || *clock.lock().unwrap()));
        let sequence = |_| match cuts {
            true => policy.cutting_sequence(),
            false => policy.sequence(),
        };
        let mut sequences: Vec<_> = (0..sequences).map(sequence).collect();
        batch.speed(|batch| batch.adaptive(&policy, &mut sequences))
    };
    let fixed = (0..=MOST).map(|length| {
        let mut batch = Batch::new(sequences, token_seconds);
        batch.speed(|batch| batch.fixed(length))
    });
    let (cut, whole) = (adaptive(true), adaptive(false));
    (cut / whole, cut / fixed.fold(0.0, f64::max))
}

/// Sequences in flight, and seconds of each draft token in a verification.
const LOADS: [(u32, f64); 6] = [
    (8, 0.0),
    (8, 0.0001),
    (8, 0.0003),
    (8, 0.001),
    (16, 0.0003),
    (32, 0.001),
];

#[test]
fn sequences_together_are_about_as_fast_as_with_the_best_fixed_length() {
    for (sequences, token_seconds) in LOADS {
        let (_, share) = of_whole_and_of_best_fixed(sequences, token_seconds);
        assert!(share >= 0.97, "{sequences} {token_seconds} {share}");
    }
}

#[test]
fn verifying_the_likeliest_tokens_is_faster_where_each_takes_time() {
    for (sequences, token_seconds) in LOADS {
        let (gain, _) = of_whole_and_of_best_fixed(sequences, token_seconds);
        assert!(gain >= 0.99, "{sequences} {token_seconds} {gain}");
    }
    for sequences in [8, 16] {
        let (gain, _) = of_whole_and_of_best_fixed(sequences, 0.0003);
        assert!(gain >= 1.01, "{sequences} {gain}");
    }
}
