//! Responses: the outputs for a part, and those of several prompts as one batch.

use std::collections::BTreeSet;

use triton::{DataType, Tensor, packed};
use triton_specdec::request::task::Task;
use triton_specdec::response::{requested_outputs, stacked, tensors};
use triton_specdec::sequence::part::Part;

const ALL: [&str; 12] = [
    "text_output",
    "batch_index",
    "sequence_index",
    "cum_log_probs",
    "output_log_probs",
    "acceptance_rate",
    "total_accepted_draft_tokens",
    "total_draft_tokens",
    "acceptance_histogram",
    "num_input_tokens",
    "num_output_tokens",
    "context_logits",
];

fn outputs(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn part() -> Part {
    Part {
        text: "new".to_owned(),
        tokens: 2,
        log_probs: vec![-0.5, -1.0],
        cum_log_prob: -3.5,
        drafted: 8,
        accepted: 2,
        rounds: 3,
        histogram: vec![1, 2],
        outputs: vec![Tensor::fp32("context_logits", &[1, 2, 1], &[1.0, 2.0])],
    }
}

/// A task that requests every optional output.
fn task_with_all_outputs() -> Task {
    Task {
        prompt: vec![5, 6, 7],
        log_probs: true,
        statistics: true,
        input_count: true,
        output_count: true,
        ..Task::default()
    }
}

fn bytes(name: &'static str, shape: &[i64], values: &[&[u8]]) -> Tensor {
    Tensor::new(name, DataType::Bytes, shape, packed(values))
}

#[test]
fn every_output_is_made_on_request() {
    let made = tensors("whole", 3, &task_with_all_outputs(), part(), &outputs(&ALL));
    let expected = [
        Tensor::text("text_output", &[1], "whole"),
        Tensor::scalar("batch_index", 3),
        Tensor::scalar("sequence_index", 0),
        Tensor::fp32("cum_log_probs", &[1, 1], &[-3.5]),
        Tensor::fp32("output_log_probs", &[1, 1, 2], &[-0.5, -1.0]),
        Tensor::fp32("acceptance_rate", &[1, 1], &[0.25]),
        Tensor::scalar("total_accepted_draft_tokens", 2),
        Tensor::scalar("total_draft_tokens", 8),
        Tensor::int32("acceptance_histogram", &[1, 2], &[1, 2]),
        Tensor::scalar("num_input_tokens", 3),
        Tensor::scalar("num_output_tokens", 2),
        Tensor::fp32("context_logits", &[1, 2, 1], &[1.0, 2.0]),
    ];
    assert_eq!(made, expected);
}

#[test]
fn outputs_that_the_task_does_not_request_are_omitted() {
    let made = tensors("", 0, &Task::default(), part(), &outputs(&ALL));
    let names: Vec<_> = made.iter().map(|item| item.name.as_ref()).collect();
    assert_eq!(
        names,
        [
            "text_output",
            "batch_index",
            "sequence_index",
            "context_logits"
        ]
    );
}

#[test]
fn only_requested_outputs_become_tensors() {
    for names in [&["text_output"][..], &["num_input_tokens", "text_output"]] {
        let made = tensors("x", 0, &task_with_all_outputs(), part(), &outputs(names));
        let made = made.iter().map(|item| item.name.to_string()).collect();
        assert_eq!(outputs(names), made);
    }
}

#[test]
fn requested_outputs_are_limited_to_declared_ones() {
    let declared = outputs(&["text_output", "batch_index"]);
    let made = requested_outputs(&declared, ["text_output", "num_input_tokens"]);
    assert_eq!(made, outputs(&["text_output"]));
}

#[test]
fn acceptance_rate_without_drafts_is_zero() {
    let plain = Part {
        drafted: 0,
        accepted: 0,
        ..part()
    };
    let made = tensors(
        "",
        0,
        &task_with_all_outputs(),
        plain,
        &outputs(&["acceptance_rate"]),
    );
    assert_eq!(made, [Tensor::fp32("acceptance_rate", &[1, 1], &[0.0])]);
}

#[test]
fn statistics_of_the_answer_replace_those_of_the_target() {
    let mut part = part();
    part.outputs = vec![Tensor::fp32("acceptance_rate", &[1, 1], &[0.75])];
    let rate = outputs(&["acceptance_rate"]);
    let made = tensors("", 0, &task_with_all_outputs(), part.clone(), &rate);
    assert_eq!(made, [Tensor::fp32("acceptance_rate", &[1, 1], &[0.25])]);
    let made = tensors("", 0, &Task::default(), part.clone(), &rate);
    assert_eq!(made, part.outputs);
}

#[test]
fn rows_make_a_batch() {
    let row = |index, text| tensors(text, index, &Task::default(), part(), &outputs(&ALL));
    let made = stacked(vec![row(0, "a"), row(1, "longer")]).expect("rows of a kind");
    let expected = [
        bytes("text_output", &[2], &[b"a", b"longer"]),
        Tensor::int32("batch_index", &[2, 1], &[0, 1]),
        Tensor::int32("sequence_index", &[2, 1], &[0, 0]),
        Tensor::fp32("context_logits", &[2, 2, 1], &[1.0, 2.0, 1.0, 2.0]),
    ];
    assert_eq!(made, expected);
    assert_eq!(stacked(vec![row(4, "one")]), Ok(row(4, "one")));
    assert_eq!(stacked(vec![]), Ok(vec![]));
}

#[test]
fn shorter_and_missing_rows_are_padded_with_zeros() {
    let rows = vec![
        vec![Tensor::fp32("output_log_probs", &[1, 1, 1], &[-1.0])],
        vec![bytes("texts", &[1, 2], &[b"b", b"cc"])],
        vec![
            Tensor::fp32("output_log_probs", &[1, 1, 3], &[-2.0, -3.0, -4.0]),
            bytes("texts", &[1, 1], &[b"d"]),
        ],
        vec![Tensor::fp32("output_log_probs", &[1, 1, 0], &[])],
    ];
    let numbers = [
        -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, -2.0, -3.0, -4.0, 0.0, 0.0, 0.0,
    ];
    let texts: [&[u8]; 8] = [b"", b"", b"b", b"cc", b"d", b"", b"", b""];
    let expected = [
        Tensor::fp32("output_log_probs", &[4, 1, 3], &numbers),
        bytes("texts", &[4, 2], &texts),
    ];
    assert_eq!(stacked(rows), Ok(expected.to_vec()));
}

#[test]
fn every_dimension_may_differ() {
    let flat = Tensor::int32("blocks", &[1, 1, 3], &[1, 2, 3]);
    let tall = Tensor::int32("blocks", &[1, 2, 2], &[4, 5, 6, 7]);
    let made = stacked(vec![vec![flat], vec![tall]]);
    let values = [1, 2, 3, 0, 0, 0, 4, 5, 0, 6, 7, 0];
    assert_eq!(made, Ok(vec![Tensor::int32("blocks", &[2, 2, 3], &values)]));
}

#[test]
fn outputs_of_different_types_are_an_error() {
    let number = Tensor::int32("one", &[1, 1], &[1]);
    for other in [
        Tensor::fp32("one", &[1, 1], &[1.0]),
        Tensor::int32("one", &[1, 1, 1], &[1]),
        Tensor::int32("one", &[2, 1], &[1, 1]),
        Tensor::int32("one", &[1, 2], &[1]),
        Tensor::int32("one", &[1, -2], &[1]),
        Tensor::int32("one", &[1, i64::MAX], &[1]),
        bytes("one", &[1, 1], &[b"1"]),
    ] {
        let error = stacked(vec![vec![number.clone()], vec![other.clone()]]);
        assert!(error.is_err(), "{other:?}");
    }
    let lone = vec![vec![], vec![Tensor::int32("one", &[], &[1])]];
    assert!(stacked(lone).is_err());
}
