//! Stop words: the automaton has the same results as a separate search for every word.

use std::sync::Arc;

use simulation::numbers::Numbers;
use triton::Tensor;
use triton_specdec::request::task::Task;
use triton_specdec::sequence::detokenizer::StopText;
use triton_specdec::sequence::stop_words::Matcher;
use triton_specdec::sequence::tokens::Tokens;

#[allow(dead_code)]
mod simulation;

/// Searches for every stop word separately, and in the whole text again after every piece.
struct Naive {
    stop_words: Vec<String>,
    text: String,
}

impl Naive {
    fn cut(&mut self, piece: &str) -> Option<usize> {
        let before = self.text.chars().count();
        self.text += piece;
        let stop_words = self.stop_words.iter().filter(|word| !word.is_empty());
        let ends = stop_words.filter_map(|word| Some(self.text.find(word)? + word.len()));
        let end = ends.min()?;
        Some(self.text[..end].chars().count() - before)
    }
}

fn random_text(numbers: &mut Numbers, most: usize) -> String {
    let signs = ['a', 'b', 'é', 'è', '漢', '🙂'];
    let kinds = numbers.between(1, signs.len());
    (0..numbers.between(0, most))
        .map(|_| signs[numbers.between(0, kinds - 1)])
        .collect()
}

#[test]
fn automaton_agrees_with_a_naive_search() {
    let mut stopped = 0;
    for seed in 0..5_000 {
        let mut numbers = Numbers::new(seed);
        let most = numbers.between(1, 12);
        let stop_words: Vec<String> = (0..numbers.between(0, 20))
            .map(|_| random_text(&mut numbers, most))
            .collect();
        let mut stop = StopText::new(&stop_words);
        let mut naive = Naive {
            stop_words,
            text: String::new(),
        };
        for _ in 0..numbers.between(0, 30) {
            let piece = random_text(&mut numbers, 6);
            let cut = stop.find(&piece);
            assert_eq!(
                cut,
                naive.cut(&piece),
                "seed {seed}, {:?}",
                naive.stop_words
            );
            if cut.is_some() {
                stopped += 1;
                break;
            }
        }
    }
    // Both outcomes must have occurred.
    assert!((500..4_500).contains(&stopped), "{stopped} of 5000");
}

/// What the target returns: all tokens so far, with the prompt.
fn outputs(ids: &[i32]) -> Vec<Tensor> {
    vec![
        Tensor::int32("output_ids", &[1, 1, ids.len() as i64], ids),
        Tensor::int32("sequence_length", &[1, 1], &[ids.len() as i32]),
    ]
}

#[test]
fn stop_words_of_tokens_agree_with_a_naive_search() {
    // The bytes of these ids overlap: an id may end with the bytes that another one begins with.
    let ids = [1, 256, 257, 65_536, 16_777_216, -1];
    let mut ended = 0;
    for seed in 0..3_000 {
        let mut numbers = Numbers::new(seed);
        let mut tokens = |least: usize, most: usize| -> Vec<i32> {
            (0..numbers.between(least, most))
                .map(|_| ids[numbers.between(0, ids.len() - 1)])
                .collect()
        };
        let task = Task {
            prompt: tokens(1, 4),
            stop_words: (0..seed % 7).map(|_| tokens(1, 4)).collect(),
            end_id: -2,
            max_tokens: 40,
            ..Task::default()
        };
        let new = tokens(40, 40);
        let whole = [task.prompt.as_slice(), &new].concat();
        let stops = |length: &usize| {
            let so_far = &whole[..task.prompt.len() + length];
            task.stop_words.iter().any(|word| so_far.ends_with(word))
        };
        let expected = (1..=new.len()).find(stops);
        ended += usize::from(expected.is_some());
        let mut tokens = Tokens::new(Arc::new(task.clone()));
        let mut length = task.prompt.len();
        loop {
            length = (length + numbers.between(1, 7)).min(whole.len());
            let chunk = tokens.decoded(0, &outputs(&whole[..length]));
            if chunk.expect("outputs that repeat the prefix").finished {
                break;
            }
        }
        let count = tokens.generated().len();
        assert_eq!(count, expected.unwrap_or(new.len()), "seed {seed}");
    }
    assert!((500..2_900).contains(&ended), "{ended} of 3000");
}

#[test]
fn no_stop_words_need_no_automaton() {
    assert!(Matcher::new(["", ""]).is_none());
    assert!(Matcher::new(Vec::<&str>::new()).is_none());
}
