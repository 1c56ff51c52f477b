//! Incremental decoding: the pieces of text, joined, are the whole text. Stop words are detected
//! across pieces.

use std::sync::atomic::{AtomicUsize, Ordering};

use shipped::{open, pair};
use simulation::numbers::Numbers;
use triton_specdec::error::Error;
use triton_specdec::sequence::detokenizer::{
    Detokenizer, StopText, after_chars, first_chars, without_last_chars,
};
use triton_specdec::tokenizer::Tokenizer;

#[allow(dead_code)]
mod shipped;
#[allow(dead_code)]
mod simulation;

/// Random text of letters, accents, multi-byte characters, joiners and replacement characters.
fn random_text(numbers: &mut Numbers, most: usize) -> String {
    let signs: Vec<char> = "ab zé ß漢字🙂👍🏽\u{200d}\u{301}\n\t'<|>\u{fffd}"
        .chars()
        .collect();
    (0..numbers.between(0, most))
        .map(|_| signs[numbers.between(0, signs.len() - 1)])
        .collect()
}

#[test]
fn pieces_concatenate_to_the_whole_text() {
    let tokenizer = open(&pair()).unwrap();
    for seed in 0..300 {
        let mut numbers = Numbers::new(seed);
        let text = random_text(&mut numbers, 60);
        let ids = tokenizer.encode(&text).unwrap();
        let mut rest = ids.as_slice();
        let mut detokenizer = Detokenizer::default();
        let mut text_so_far = String::new();
        while !rest.is_empty() {
            let (next, after) = rest.split_at(numbers.between(1, rest.len()));
            let piece = detokenizer.push(&tokenizer, next);
            assert!(!piece.contains('\u{fffd}') || text.contains('\u{fffd}'));
            text_so_far += &piece;
            rest = after;
        }
        assert_eq!(text_so_far + &detokenizer.flush(&tokenizer), text);
    }
}

#[test]
fn pieces_of_any_tokens_concatenate_to_their_text() {
    let tokenizer = open(&pair()).unwrap();
    for seed in 0..200 {
        let mut numbers = Numbers::new(seed);
        let ids: Vec<i32> = (0..numbers.between(0, 200))
            .map(|_| numbers.between(1, 1023) as i32)
            .collect();
        let mut detokenizer = Detokenizer::default();
        let mut text_so_far = String::new();
        for id in &ids {
            text_so_far += &detokenizer.push(&tokenizer, &[*id]);
        }
        assert_eq!(
            text_so_far + &detokenizer.flush(&tokenizer),
            tokenizer.decode(&ids)
        );
    }
}

/// One letter for every token; records how many are decoded at once.
#[derive(Default)]
struct Letters(AtomicUsize);

impl Tokenizer for Letters {
    fn encode(&self, text: &str) -> Result<Vec<i32>, Error> {
        Ok(vec![1; text.len()])
    }
    fn encode_word(&self, word: &str) -> Result<Vec<i32>, Error> {
        self.encode(word)
    }
    fn decode(&self, ids: &[i32]) -> String {
        self.0.fetch_max(ids.len(), Ordering::Relaxed);
        "é".repeat(ids.len())
    }
    fn end_id(&self) -> i32 {
        -1
    }
    fn pad_id(&self) -> i32 {
        -1
    }
    fn size(&self) -> usize {
        1
    }
}

#[test]
fn cost_of_a_token_does_not_grow_with_the_answer() {
    let tokenizer = Letters::default();
    let mut detokenizer = Detokenizer::default();
    let text: String = (0..1000)
        .map(|_| detokenizer.push(&tokenizer, &[1]))
        .collect();
    assert_eq!(text, "é".repeat(1000));
    assert!(tokenizer.0.load(Ordering::Relaxed) < 100);
}

#[test]
fn incomplete_characters_are_held_back() {
    let tokenizer = open(&pair()).unwrap();
    let ids = tokenizer.encode("ab漢").unwrap();
    let mut detokenizer = Detokenizer::default();
    let piece = detokenizer.push(&tokenizer, &ids[..ids.len() - 1]);
    assert_eq!((piece.as_str(), detokenizer.held), ("ab", 1));
    assert_eq!(detokenizer.push(&tokenizer, &ids[ids.len() - 1..]), "漢");
    assert_eq!(detokenizer.held, 0);
}

#[test]
fn stop_words_are_detected_across_pieces() {
    let letters = ["a", "é"];
    for seed in 0..500 {
        let mut numbers = Numbers::new(seed);
        let mut word = |least: usize| -> String {
            let length = numbers.between(least, 4);
            (0..length)
                .map(|_| letters[numbers.between(0, 1)])
                .collect()
        };
        let stop_words: Vec<String> = (0..seed % 3 + 1).map(|_| word(1)).collect();
        let pieces: Vec<String> = (0..seed % 13).map(|_| word(0)).collect();
        let mut stop = StopText::new(&stop_words);
        let mut kept = String::new();
        for piece in &pieces {
            let cut = stop.find(piece);
            kept += cut.map_or(piece.as_str(), |count| first_chars(piece, count));
            if cut.is_some() {
                break;
            }
        }
        let whole = pieces.concat();
        let ends = stop_words
            .iter()
            .filter_map(|word| Some(whole.find(word)? + word.len()));
        assert_eq!(
            kept,
            whole[..ends.min().unwrap_or(whole.len())],
            "seed {seed}"
        );
    }
}

#[test]
fn lengths_of_text_count_characters() {
    assert_eq!(first_chars("aé漢", 2), "aé");
    assert_eq!(after_chars("aé漢", 2), "漢");
    assert_eq!(without_last_chars("aé漢", 1), "aé");
    assert_eq!(
        (
            first_chars("a", 2),
            after_chars("a", 2),
            without_last_chars("a", 2)
        ),
        ("a", "", "")
    );
}
