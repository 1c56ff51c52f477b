//! The target's own statistics: which calls ask for them, and what responses carry.

use std::sync::Arc;

use support::{Run, task};
use triton::Tensor;
use triton_specdec::engine::find;
use triton_specdec::request::task::Task;
use triton_specdec::sequence::statistics::combined;
use triton_specdec::sequence::tokens::Tokens;

mod support;

const NAMES: [&str; 2] = ["arrival_time_ns", "last_token_time_ns"];
const FLAG: &str = "return_perf_metrics";

fn asking(names: &[&str], stream: bool) -> Task {
    Task {
        statistics: true,
        min_tokens: 20,
        stream,
        target_only_inputs: vec![Tensor::flag(FLAG)],
        target_only_outputs: names.iter().map(|name| (*name).to_owned()).collect(),
        ..task(20, 3)
    }
}

fn numbers(outputs: &[Tensor]) -> Vec<i64> {
    let values = NAMES.iter().filter_map(|name| find(outputs, name));
    values.flat_map(Tensor::integers).collect()
}

#[test]
fn every_part_of_a_speculated_stream_has_the_statistics_so_far() {
    let outcome = Run::new(1, 2).finish(asking(&NAMES, true));
    let calls = outcome.target.calls.len() as i64;
    assert!(calls > 1);
    let of_parts: Vec<_> = outcome
        .parts
        .iter()
        .map(|part| numbers(&part.outputs))
        .collect();
    let of_calls: Vec<_> = (0..calls).map(|call| vec![0, call]).collect();
    assert_eq!(of_parts[..calls as usize], of_calls);
    // The rest of the text has no call of its own.
    assert!(
        of_parts[calls as usize..]
            .iter()
            .all(|part| *part == [0, calls - 1])
    );
}

#[test]
fn whole_answer_has_the_statistics_of_all_calls() {
    let outcome = Run::new(1, 2).finish(asking(&NAMES, false));
    let calls = outcome.target.calls.len() as i64;
    assert!(calls > 1);
    let [part] = outcome.parts.as_slice() else {
        panic!("{} parts", outcome.parts.len());
    };
    assert_eq!(numbers(&part.outputs), [0, calls - 1]);
    // The draft has nothing to report.
    for call in &outcome.draft.calls {
        assert!(find(&call.inputs, FLAG).is_none());
        assert!(
            NAMES
                .iter()
                .all(|name| !call.outputs.iter().any(|output| output == name))
        );
    }
}

#[test]
fn verification_asks_for_statistics_only_if_responses_carry_them() {
    let outcome = Run::new(1, 2).finish(asking(&[], true));
    assert!(!outcome.target.calls.is_empty());
    for call in &outcome.target.calls {
        assert!(find(&call.inputs, FLAG).is_none());
        assert_eq!(call.outputs.len(), 2);
    }
}

#[test]
fn task_keeps_requested_outputs_that_it_does_not_count_itself() {
    let requested = ["acceptance_rate", "arrival_time_ns"]
        .map(str::to_owned)
        .into();
    let names = ["acceptance_rate", "arrival_time_ns", "last_token_time_ns"];
    let limited = |task: Task| {
        let mut task = task;
        task.limit_outputs(&requested);
        task.target_only_outputs
    };
    let task = asking(&names, false);
    assert_eq!(limited(task.clone()), ["arrival_time_ns"]);
    // Without its own statistics, the target's are passed on.
    let without = Task {
        statistics: false,
        ..task.clone()
    };
    assert_eq!(limited(without), ["acceptance_rate", "arrival_time_ns"]);
    // Without rounds, the engine may do its own drafting. The totals of all calls need its counts.
    let names = [
        "acceptance_rate",
        "total_draft_tokens",
        "last_token_time_ns",
    ];
    let target_only = Task {
        draft_tokens: 0,
        ..asking(&names, false)
    };
    assert_eq!(limited(target_only), names[..2]);
}

#[test]
fn histogram_has_every_verification_step() {
    // The target accepts every token of a draft with its seed, and those of another one by chance.
    for draft in 1..9 {
        let outcome = Run::new(1, draft).finish(asking(&[], true));
        let last = outcome.parts.last().expect("an answer has a part");
        let steps: i32 = last.histogram.iter().sum();
        assert_eq!(steps as usize, last.rounds);
        let bins = last.histogram.iter().enumerate();
        let accepted: usize = bins.map(|(tokens, steps)| tokens * *steps as usize).sum();
        assert_eq!(accepted, last.accepted);
        assert!(draft != 1 || accepted == last.drafted);
    }
}

#[test]
fn answer_of_an_engine_that_drafts_itself_has_its_counts() {
    let outputs = |drafted, accepted| {
        vec![
            Tensor::int32("output_ids", &[1, 1, 5], &[5, 6, 7, 8, 9]),
            Tensor::scalar("sequence_length", 5),
            Tensor::scalar("total_draft_tokens", drafted),
            Tensor::scalar("total_accepted_draft_tokens", accepted),
        ]
    };
    let task = Task {
        prompt: vec![5, 6, 7],
        ..task(4, 0)
    };
    let mut tokens = Tokens::new(Arc::new(task));
    let chunk = tokens.decoded(2, &outputs(8, 3)).expect("two tokens");
    assert_eq!((chunk.drafted, chunk.accepted, chunk.rounds), (8, 3, 0));
}

#[test]
fn first_call_decides_the_first_times_and_the_last_call_the_rest() {
    let call = |number: i32| {
        let names = [
            "first_token_time_ns",
            "last_token_time_ns",
            "kv_cache_reused_blocks",
            "generation_logits",
        ];
        names.map(|name| Tensor::scalar(name, number)).to_vec()
    };
    let first = combined(Vec::new(), &call(1));
    assert_eq!(first, call(1));
    let second = combined(first, &call(2));
    let value = |name| find(&second, name).map(Tensor::integers);
    assert_eq!(value("first_token_time_ns"), Some(vec![1]));
    assert_eq!(value("last_token_time_ns"), Some(vec![2]));
    assert_eq!(value("kv_cache_reused_blocks"), Some(vec![2]));
    assert_eq!(value("generation_logits"), Some(vec![2]));
    // A part without a call has no logits.
    let rest = combined(second, &[]);
    assert!(find(&rest, "generation_logits").is_none());
    assert_eq!(rest.len(), 3);
}
