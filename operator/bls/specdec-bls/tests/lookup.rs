//! Lookups: their match is the longest one, as a plain search finds it. They propose what followed
//! the match, and stay within their bounds of memory.

use support::numbers::Numbers;
use triton_specdec::lookup::automaton::Automaton;
use triton_specdec::lookup::{CLASSES, Candidate, Lookup};

mod support;

/// Random text of few distinct tokens, or of copies of itself.
fn text(numbers: &mut Numbers, length: usize) -> Vec<i32> {
    let alphabet = [1, 2, 3, 5, 40][numbers.between(0, 4)];
    let mut text: Vec<i32> = Vec::new();
    while text.len() < length {
        if text.len() > 4 && numbers.between(0, 2) == 0 {
            let begin = numbers.between(0, text.len() - 2);
            let end = numbers.between(begin + 1, text.len() - 1);
            text.extend_from_within(begin..end);
        }
        text.push(numbers.between(1, alphabet) as i32);
    }
    text.truncate(length);
    text
}

/// The length of the longest suffix that also ends earlier, by comparing with every position.
fn longest_suffix(text: &[i32]) -> usize {
    let common = |end: usize| {
        let pairs = text[..end].iter().rev().zip(text.iter().rev());
        pairs.take_while(|(left, right)| left == right).count()
    };
    (1..text.len()).map(common).max().unwrap_or(0)
}

fn candidate(text: &[i32], min_match: usize, most: usize) -> Option<Candidate> {
    let mut lookup = Lookup::new(min_match);
    lookup.extend(text);
    lookup.candidate(text, most)
}

#[test]
fn longest_match_is_known_after_every_token() {
    for seed in 0..200 {
        let mut numbers = Numbers::new(seed);
        let length = numbers.between(1, 120);
        let text = text(&mut numbers, length);
        let mut automaton = Automaton::default();
        for end in 1..=text.len() {
            automaton.push(text[end - 1]);
            let expected = longest_suffix(&text[..end]);
            let longest = automaton.longest();
            assert_eq!(
                longest.map_or(0, |earlier| earlier.length),
                expected,
                "{text:?}"
            );
            if let Some(earlier) = longest {
                assert!(earlier.end < end);
                let tokens = &text[earlier.end - earlier.length..earlier.end];
                assert_eq!(tokens, &text[end - earlier.length..end]);
            }
        }
    }
}

#[test]
fn candidate_is_what_followed_the_match() {
    assert_eq!(candidate(&[1, 2, 3, 4, 1, 2], 2, 2).unwrap().tokens, [3, 4]);
    // The latest of two occurrences.
    let twice = [1, 2, 3, 8, 1, 2, 4, 9, 1, 2];
    assert_eq!(candidate(&twice, 2, 1).unwrap().tokens, [4]);
    // A period continues beyond the end of the text.
    assert_eq!(
        candidate(&[7, 8, 7, 8, 7], 1, 5).unwrap().tokens,
        [8, 7, 8, 7, 8]
    );
    assert_eq!(candidate(&[5, 5], 1, 3).unwrap().tokens, [5, 5, 5]);
}

#[test]
fn short_matches_and_new_text_have_no_candidate() {
    assert_eq!(candidate(&[1, 2, 3, 4], 1, 4), None);
    assert_eq!(candidate(&[1, 2, 3, 1], 2, 4), None);
    assert_eq!(candidate(&[1, 2, 1, 2], 2, 0), None);
    assert_eq!(candidate(&[], 1, 4), None);
}

#[test]
fn class_depends_on_the_match_and_on_what_followed_it() {
    let certain = candidate(&[1, 2, 3, 4, 1, 2], 2, 2).unwrap();
    assert_eq!((certain.matched, certain.classes.len()), (2, 2));
    let torn = candidate(&[1, 2, 3, 8, 1, 2, 4, 9, 1, 2], 2, 2).unwrap();
    assert_ne!(certain.classes[0], torn.classes[0]);
    let longer = candidate(&[1, 2, 3, 4, 5, 6, 1, 2, 3, 4], 2, 1).unwrap();
    assert_ne!(certain.classes[0], longer.classes[0]);
    for seed in 0..100 {
        let text = text(&mut Numbers::new(seed), 80);
        let candidate = candidate(&text, 1, 80).unwrap_or_default();
        assert!(candidate.classes.iter().all(|class| *class < CLASSES));
    }
}

#[test]
fn learning_in_parts_equals_learning_at_once() {
    let text = text(&mut Numbers::new(3), 100);
    let mut lookup = Lookup::new(1);
    for end in 0..=text.len() {
        lookup.extend(&text[..end]);
        assert!(lookup.is_current(&text[..end]));
        assert_eq!(
            lookup.candidate(&text[..end], 9),
            candidate(&text[..end], 1, 9)
        );
    }
}

#[test]
fn automaton_takes_at_most_64_bytes_a_token() {
    let mut numbers = Numbers::new(1);
    let worst = |index: usize| if index == 0 { 1 } else { 2 };
    let repeated = (0..8192).map(|_| 1).collect();
    let distinct = (0..8192).collect();
    let ending = (0..8192).map(worst).collect();
    let alternating = (0..8192).map(|index| 1 + index % 2).collect();
    let fibonacci = fibonacci(8192);
    let random = (0..8192).map(|_| numbers.between(1, 2) as i32).collect();
    let vocabulary = (0..8192).map(|_| numbers.between(1, 3000) as i32).collect();
    let texts: [Vec<i32>; 8] = [
        repeated,
        distinct,
        ending,
        alternating,
        fibonacci,
        random,
        vocabulary,
        text(&mut numbers, 8192),
    ];
    for text in texts {
        let mut automaton = Automaton::default();
        text.iter().for_each(|token| automaton.push(*token));
        let bytes = automaton.bytes();
        assert!(bytes <= 64 * text.len(), "{} a token", bytes / text.len());
    }
}

/// The Fibonacci word, whose every prefix is full of repetitions.
fn fibonacci(length: usize) -> Vec<i32> {
    let (mut before, mut word) = (vec![1], vec![1, 2]);
    while word.len() < length {
        let next = [word.as_slice(), &before].concat();
        before = std::mem::replace(&mut word, next);
    }
    word.truncate(length);
    word
}
