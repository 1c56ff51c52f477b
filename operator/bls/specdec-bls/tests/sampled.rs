//! Sampled answers: every call draws its own numbers.

use std::collections::BTreeSet;

use common::numbers::Numbers;
use common::{Run, task};
use serde_json::Value;
use triton_specdec::engine::{Call, find};
use triton_specdec::task::{Task, call_seed};

mod common;

/// The client's own loop draws the same numbers: its test reads this table as well.
const TABLE: &str = include_str!("data/call_seeds.json");

#[test]
fn calls_draw_the_numbers_of_the_table() {
    let rows: Vec<Value> = serde_json::from_str(TABLE).unwrap();
    assert!(rows.len() > 20);
    for row in &rows {
        let number = |name: &str| row[name].as_u64().unwrap();
        let apart = row["apart"].as_bool().unwrap();
        let found = call_seed(number("seed"), number("generated"), apart);
        assert_eq!(found, number("value"), "{row}");
    }
}

#[test]
fn every_call_has_a_seed_of_its_own() {
    for number in 0..300 {
        let mut numbers = Numbers::new(number);
        let seed = u64::from(numbers.bits()) << 32 | u64::from(numbers.bits());
        let places: BTreeSet<u64> = (0..9).map(|_| numbers.between(0, 4096) as u64).collect();
        let seeds: BTreeSet<u64> = places
            .iter()
            .flat_map(|place| [false, true].map(|apart| call_seed(seed, *place, apart)))
            .collect();
        assert_eq!(seeds.len(), 2 * places.len());
        assert_eq!(call_seed(seed, 0, false), seed);
    }
}

fn seeds(calls: &[Call], name: &str) -> Vec<i64> {
    let of_call = |call: &Call| find(&call.inputs, name).unwrap().integers()[0];
    calls.iter().map(of_call).collect()
}

#[test]
fn draft_and_target_share_numbers_only_by_tokens() {
    for (by_logits, name) in [(false, "random_seed"), (true, "seed")] {
        let task = Task {
            seed: Some(11),
            seed_name: name,
            use_draft_logits: by_logits,
            min_tokens: 9,
            ..task(9, 3)
        };
        let made = Run::new(3, 4).make(task);
        let target = seeds(&made.target.calls, name);
        let draft = seeds(&made.draft.calls, name);
        let rounds = draft.len();
        assert!(rounds > 1);
        let own: BTreeSet<_> = target.iter().collect();
        assert_eq!((own.len(), target[0]), (target.len(), 11));
        assert_eq!(target[..rounds] == draft, !by_logits);
        assert_eq!(draft.iter().any(|one| own.contains(one)), !by_logits);
        let other = if by_logits { "random_seed" } else { "seed" };
        assert!(find(&made.target.calls[0].inputs, other).is_none());
    }
}

#[test]
fn a_whole_answer_of_the_target_alone_keeps_the_users_seed() {
    let task = Task {
        seed: Some(u64::MAX),
        ..task(9, 0)
    };
    let made = Run::new(3, None).make(task);
    assert_eq!(seeds(&made.target.calls, "random_seed"), [-1]);
}
