//! Seeds of sampled answers: they differ from round to round. The draft call and the verification
//! of one round share a seed, unless the target compares the draft's logits.

use std::collections::BTreeSet;

use serde_json::Value;
use support::numbers::Numbers;
use support::{Run, task};
use triton_specdec::engine::{Call, find};
use triton_specdec::request::task::{Task, call_seed};

mod support;

/// The Python client derives the same seeds, so its test reads this table as well.
const TABLE: &str = include_str!("data/call_seeds.json");

#[test]
fn seeds_of_calls_are_those_of_the_table() {
    let rows: Vec<Value> = serde_json::from_str(TABLE).unwrap();
    assert!(rows.len() > 20);
    for row in &rows {
        let number = |name: &str| row[name].as_u64().unwrap();
        let distinct = row["distinct"].as_bool().unwrap();
        let value = call_seed(number("seed"), number("generated"), distinct);
        assert_eq!(value, number("value"), "{row}");
    }
}

#[test]
fn seeds_differ_by_position_and_by_distinct() {
    for number in 0..300 {
        let mut numbers = Numbers::new(number);
        let seed = u64::from(numbers.bits()) << 32 | u64::from(numbers.bits());
        let positions: BTreeSet<u64> = (0..9).map(|_| numbers.between(0, 4096) as u64).collect();
        let seeds: BTreeSet<u64> = positions
            .iter()
            .flat_map(|at| [false, true].map(|distinct| call_seed(seed, *at, distinct)))
            .collect();
        assert_eq!(seeds.len(), 2 * positions.len());
        assert_eq!(call_seed(seed, 0, false), seed);
    }
}

fn seeds(calls: &[Call], name: &str) -> Vec<i64> {
    let of_call = |call: &Call| find(&call.inputs, name).unwrap().integers()[0];
    calls.iter().map(of_call).collect()
}

#[test]
fn draft_and_target_share_no_seed_if_logits_are_compared() {
    for (by_logits, name) in [(false, "random_seed"), (true, "seed")] {
        let task = Task {
            seed: Some(11),
            seed_name: name,
            use_draft_logits: by_logits,
            min_tokens: 9,
            ..task(9, 3)
        };
        let outcome = Run::new(3, 4).finish(task);
        let target = seeds(&outcome.target.calls, name);
        let draft = seeds(&outcome.draft.calls, name);
        let rounds = draft.len();
        assert!(rounds > 1);
        let of_target: BTreeSet<_> = target.iter().collect();
        assert_eq!((of_target.len(), target[0]), (target.len(), 11));
        assert_eq!(target[..rounds] == draft, !by_logits);
        assert_eq!(
            draft.iter().any(|seed| of_target.contains(seed)),
            !by_logits
        );
        let other = if by_logits { "random_seed" } else { "seed" };
        assert!(find(&outcome.target.calls[0].inputs, other).is_none());
    }
}

#[test]
fn single_target_only_call_keeps_the_seed_of_the_client() {
    let task = Task {
        seed: Some(u64::MAX),
        ..task(9, 0)
    };
    let outcome = Run::new(3, None).finish(task);
    assert_eq!(seeds(&outcome.target.calls, "random_seed"), [-1]);
}
