//! The memory of finished texts: scopes are separate, and the choice of what is evicted is fair.

use std::collections::HashMap;
use std::sync::Arc;

use numbers::Numbers;
use triton_specdec::lookup::Lookup;
use triton_specdec::lookup::memory::{MAX_SCOPE_BYTES, Memory};

#[allow(dead_code)]
#[path = "simulation/numbers.rs"]
mod numbers;

const MEGABYTE: usize = 1 << 20;
const MOST: usize = 8;

/// A text with repetitions: tokens of a small vocabulary, so that scopes have n-grams in common.
fn text(numbers: &mut Numbers, vocabulary: usize, most: usize) -> Vec<i32> {
    let length = numbers.between(1, most);
    let token = |_| numbers.between(1, vocabulary) as i32;
    (0..length).map(token).collect()
}

fn contains(texts: &[Vec<i32>], part: &[i32]) -> bool {
    texts
        .iter()
        .any(|text| text.windows(part.len()).any(|window| window == part))
}

#[test]
fn memory_proposes_what_followed_in_another_text() {
    let memory = Memory::new(MEGABYTE);
    memory.learn("a", &[1, 2, 3, 4, 5, 6, 7]);
    let candidate = memory.candidate("a", &[9, 2, 3, 4, 5], 1, MOST).unwrap();
    assert_eq!(candidate.tokens, [6, 7]);
    assert_eq!(candidate.matched, 4);
    assert!(candidate.is_from_memory());
    assert!(memory.candidate("a", &[9, 2, 3, 4, 5], 5, MOST).is_none());
    assert!(memory.candidate("a", &[9, 9, 3, 4, 5], 1, MOST).is_none());
}

#[test]
fn continuation_ends_with_its_text() {
    let memory = Memory::new(MEGABYTE);
    memory.learn("a", &[1, 2, 3, 4, 5]);
    memory.learn("a", &[6, 7, 8, 9, 10]);
    let candidate = memory.candidate("a", &[1, 2, 3, 4], 1, MOST).unwrap();
    assert_eq!(candidate.tokens, [5]);
    assert!(memory.candidate("a", &[2, 3, 4, 5], 1, MOST).is_none());
}

#[test]
fn longest_match_and_then_the_latest_decides() {
    let memory = Memory::new(MEGABYTE);
    memory.learn("a", &[7, 1, 2, 3, 4, 50]);
    memory.learn("a", &[8, 1, 2, 3, 4, 60]);
    let first = |text: &[i32]| memory.candidate("a", text, 1, MOST).unwrap();
    assert_eq!(first(&[7, 1, 2, 3, 4]).tokens, [50]);
    assert_eq!(first(&[1, 2, 3, 4]).tokens, [60]);
    // Where texts disagree, the class is that of an uncertain token.
    assert!(first(&[1, 2, 3, 4]).classes < first(&[8, 1, 2, 3, 4]).classes);
}

#[test]
fn lookup_prefers_the_text_itself_unless_the_memory_matches_more() {
    let memory = Arc::new(Memory::new(MEGABYTE));
    memory.learn("a", &[1, 2, 3, 4, 5, 70]);
    let propose = |ids: &[i32]| {
        let mut lookup = Lookup::new(2).remembering(Arc::clone(&memory), "a".to_owned());
        lookup.extend(ids);
        lookup.candidate(ids, 1)
    };
    let own = propose(&[2, 3, 4, 5, 60, 2, 3, 4, 5]).unwrap();
    assert_eq!((own.tokens, own.matched), (vec![60], 4));
    let other = propose(&[2, 3, 4, 5, 60, 1, 2, 3, 4, 5]).unwrap();
    assert_eq!((other.tokens, other.matched), (vec![70], 5));
    assert_eq!(propose(&[2, 3, 4, 5]).unwrap().tokens, [70]);
}

#[test]
fn interleaved_scopes_propose_what_they_propose_alone() {
    for seed in 0..60 {
        let numbers = &mut Numbers::new(seed);
        let scopes = ["a", "b", "c", "a b", ""];
        let shared = Memory::new(4 * MEGABYTE);
        let alone: Vec<Memory> = scopes.iter().map(|_| Memory::new(4 * MEGABYTE)).collect();
        let mut candidates = 0;
        for _ in 0..300 {
            let index = numbers.between(0, scopes.len() - 1);
            let (scope, own) = (scopes[index], &alone[index]);
            let text = text(numbers, 4, 60);
            if numbers.random() < 0.5 {
                shared.learn(scope, &text);
                own.learn(scope, &text);
            }
            let candidate = shared.candidate(scope, &text, 1, MOST);
            assert_eq!(candidate, own.candidate(scope, &text, 1, MOST));
            candidates += usize::from(candidate.is_some());
        }
        assert!(
            candidates > 30,
            "only {candidates} candidates with seed {seed}"
        );
    }
}

#[test]
fn scope_proposes_only_from_its_own_texts_while_texts_are_evicted() {
    let numbers = &mut Numbers::new(7);
    let memory = Memory::new(MEGABYTE);
    let mut texts: HashMap<usize, Vec<Vec<i32>>> = HashMap::new();
    let mut candidates = 0;
    for _ in 0..3_000 {
        let scope = numbers.between(0, 39);
        let text = text(numbers, 8, 400);
        let own = texts.entry(scope).or_default();
        let name = format!("tenant {scope}");
        if let Some(candidate) = memory.candidate(&name, &text, 1, MOST) {
            let matched = &text[text.len() - candidate.matched..];
            let part = [matched, &candidate.tokens].concat();
            assert!(contains(own, &part), "{part:?} is of another scope");
            candidates += 1;
        }
        memory.learn(&name, &text);
        own.push(text);
    }
    assert!(candidates > 500, "only {candidates} candidates");
}

#[test]
fn unknown_scope_finds_nothing_and_long_name_learns_nothing() {
    let memory = Memory::new(MEGABYTE);
    let text: Vec<i32> = (0..100).collect();
    memory.learn("a", &text);
    assert!(memory.candidate("b", &text[..50], 1, MOST).is_none());
    let before = memory.bytes();
    memory.learn(&"x".repeat(MAX_SCOPE_BYTES + 1), &text);
    assert_eq!(memory.bytes(), before);
}

#[test]
fn small_scope_keeps_its_texts_beside_a_large_one() {
    let numbers = &mut Numbers::new(3);
    let memory = Memory::new(MEGABYTE);
    let small: Vec<i32> = (1000..1500).collect();
    memory.learn("small", &small);
    for _ in 0..500 {
        memory.learn("large", &text(numbers, 5_000, 3_000));
    }
    let candidate = memory.candidate("small", &small[..100], 1, MOST).unwrap();
    assert_eq!(candidate.tokens, &small[100..108]);
}

#[test]
fn scope_keeps_its_latest_texts() {
    let memory = Memory::new(MEGABYTE);
    let text = |number: i32| -> Vec<i32> { (0..500).map(|at| number * 500 + at).collect() };
    for number in 0..400 {
        memory.learn("a", &text(number));
    }
    let known = |number: i32| {
        memory
            .candidate("a", &text(number)[..50], 1, MOST)
            .is_some()
    };
    assert!(!known(0));
    assert!((350..400).all(known));
}
