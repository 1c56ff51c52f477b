//! The parts of a stream, joined, are the whole answer, even if tokens divide characters.

use std::sync::Arc;

use support::engine::{Engine, Language};
use support::numbers::Numbers;
use support::{Run, task};
use triton_specdec::engine::Role;
use triton_specdec::error::Error;
use triton_specdec::request::task::Task;
use triton_specdec::tokenizer::Tokenizer;

mod support;

const ALPHABET: &str = "ab \né世界日本🙂🎉👩\u{200d}💻\u{301}";
/// A token that is in no text.
const WRONG: i32 = 1_000_000;

/// A byte-level vocabulary: every token is some bytes, which need not be whole characters.
struct Pieces(Vec<Vec<u8>>);

impl Tokenizer for Pieces {
    fn encode(&self, text: &str) -> Result<Vec<i32>, Error> {
        Err(Error::InvalidRequest(format!("no test encodes {text}")))
    }
    fn encode_word(&self, word: &str) -> Result<Vec<i32>, Error> {
        self.encode(word)
    }
    fn decode(&self, ids: &[i32]) -> String {
        let pieces: Vec<&[u8]> = ids
            .iter()
            .map(|id| self.0[*id as usize].as_slice())
            .collect();
        String::from_utf8_lossy(&pieces.concat()).into_owned()
    }
    fn end_id(&self) -> i32 {
        -1
    }
    fn pad_id(&self) -> i32 {
        -1
    }
    fn size(&self) -> usize {
        self.0.len()
    }
}

fn random_text(numbers: &mut Numbers) -> String {
    let signs: Vec<char> = ALPHABET.chars().collect();
    let length = numbers.between(1, 24);
    let sign = |_| signs[numbers.between(0, signs.len() - 1)];
    (0..length).map(sign).collect()
}

/// Up to three stop words, most of which are in the text.
fn random_stop_words(numbers: &mut Numbers, text: &str) -> Vec<String> {
    let signs: Vec<char> = text.chars().collect();
    let mut word = |_| -> String {
        let (begin, length) = (numbers.between(0, signs.len() - 1), numbers.between(1, 5));
        match numbers.between(0, 4) {
            0 => random_text(numbers),
            _ => signs[begin..].iter().take(length).collect(),
        }
    };
    let stop_words: Vec<String> = (0..3).map(&mut word).collect();
    let kept = numbers.between(0, 3);
    stop_words.into_iter().take(kept).collect()
}

/// The bytes of a text, cut into tokens of one to six bytes.
fn cut_into_tokens(numbers: &mut Numbers, mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(numbers.between(1, 6.min(rest.len())));
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}

/// The texts of the parts, if the target generates these tokens and the draft guesses some of them.
fn part_texts(pieces: &[Vec<u8>], stops: &[String], seed: u32, stream: bool) -> Vec<String> {
    let target: Language = Box::new(|ids, _| ids.len() as i32);
    let mut numbers = Numbers::new(seed);
    let wrong: Vec<bool> = pieces.iter().map(|_| numbers.random() < 0.3).collect();
    let draft: Language = Box::new(move |ids, _| match wrong.get(ids.len()) {
        Some(false) => ids.len() as i32,
        _ => WRONG,
    });
    let mut run = Run::new(0, 0);
    run.target = Engine::new(Role::Target, -1, target);
    run.draft = Some(Engine::new(Role::Draft, -1, draft));
    run.tokenizer = Arc::new(Pieces(pieces.to_vec()));
    let task = Task {
        prompt: vec![],
        end_id: -1,
        stop_texts: stops.to_vec(),
        stream,
        ..task(pieces.len(), 4)
    };
    let outcome = run.finish(task);
    outcome.text();
    outcome.parts.into_iter().map(|part| part.text).collect()
}

/// The text up to the end of the first stop word, searched character by character.
fn up_to_stop_word<'a>(text: &'a str, stops: &[String]) -> &'a str {
    let ends = text
        .char_indices()
        .map(|(at, sign)| at + sign.len_utf8())
        .find(|end| stops.iter().any(|stop| text[..*end].ends_with(stop)));
    &text[..ends.unwrap_or(text.len())]
}

#[test]
fn parts_concatenate_to_the_whole_answer() {
    for seed in 0..1500 {
        let mut numbers = Numbers::new(seed);
        let text = random_text(&mut numbers);
        let stops = random_stop_words(&mut numbers, &text);
        let pieces = cut_into_tokens(&mut numbers, text.as_bytes());
        let streamed = part_texts(&pieces, &stops, seed, true);
        assert_eq!(
            streamed.concat(),
            up_to_stop_word(&text, &stops),
            "seed {seed}"
        );
        assert!(!streamed.iter().any(|part| part.contains('\u{fffd}')));
        assert_eq!(
            part_texts(&pieces, &stops, seed, false),
            [up_to_stop_word(&text, &stops)]
        );
    }
}

#[test]
fn stop_word_before_an_incomplete_character() {
    let smile = "🙂".as_bytes();
    let cut = [b" on ", &smile[..2]].concat();
    let pieces = [b"go".to_vec(), cut, smile[2..].to_vec()];
    for stream in [false, true] {
        let texts = part_texts(&pieces, &["on ".to_owned()], 0, stream);
        assert_eq!(texts.concat(), "go on ");
    }
}

#[test]
fn parts_that_are_not_utf_8_concatenate_too() {
    for seed in 0..500 {
        let mut numbers = Numbers::new(seed);
        let mut bytes: Vec<u8> = (0..numbers.between(1, 40))
            .map(|_| numbers.bits() as u8)
            .collect();
        if seed == 0 {
            bytes = b"\xf0\x9f".to_vec();
        }
        let pieces: Vec<Vec<u8>> = bytes.iter().map(|byte| vec![*byte]).collect();
        let streamed = part_texts(&pieces, &[], seed, true).concat();
        assert_eq!(part_texts(&pieces, &[], seed, false), [streamed.as_str()]);
        assert_eq!(streamed, String::from_utf8_lossy(&bytes), "seed {seed}");
    }
}
