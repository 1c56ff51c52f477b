//! Merges calls of several sequences into one call with a row for each.

use triton::Tensor;
use triton_specdec::batching::merge::{can_merge, merged, shorten, single};
use triton_specdec::engine::{Call, Role};
use triton_specdec::request::task::Task;
use triton_specdec::sequence::chunk::Proposal;
use triton_specdec::sequence::tokens::Tokens;

/// A draft call that continues these tokens.
fn drafting(prompt: &[i32], length: usize, common: Vec<Tensor>) -> Call {
    let task = Task {
        prompt: prompt.to_vec(),
        max_tokens: 20,
        common,
        min_tokens_name: "min_length",
        ..Task::default()
    };
    Tokens::new(task.into()).draft_call(&[], length, false)
}

fn verifying(prompt: &[i32], proposal: &[i32], log_probs: bool) -> Call {
    let task = Task {
        prompt: prompt.to_vec(),
        max_tokens: 20,
        log_probs,
        ..Task::default()
    };
    let expected = proposal.len();
    let proposal = Proposal {
        tokens: proposal.to_vec(),
        logits: None,
        ..Proposal::default()
    };
    Tokens::new(task.into()).verification_call(proposal, expected)
}

#[test]
fn prefixes_may_differ_in_length() {
    let calls = [
        drafting(&[1, 2, 3], 4, vec![]),
        drafting(&[4], 4, vec![]),
        drafting(&[5, 6], 4, vec![]),
    ];
    assert!(calls.iter().all(|call| can_merge(&calls[0], call)));
    let (inputs, outputs) = merged(&calls.iter().collect::<Vec<_>>());
    let expected = [
        Tensor::int32("input_ids", &[3, 3], &[1, 2, 3, 4, 0, 0, 5, 6, 0]),
        Tensor::int32("input_lengths", &[3, 1], &[3, 1, 2]),
        Tensor::int32("request_output_len", &[3, 1], &[4, 4, 4]),
        Tensor::int32("min_length", &[3, 1], &[4, 4, 4]),
    ];
    assert_eq!(inputs, expected);
    assert_eq!(outputs, ["output_ids", "sequence_length", "batch_index"]);
}

#[test]
fn values_may_differ() {
    let (first, second) = (drafting(&[1], 4, vec![]), drafting(&[1], 2, vec![]));
    assert!(can_merge(&first, &second));
    let (inputs, _) = merged(&[&first, &second]);
    assert_eq!(inputs[2].integers(), [4, 2]);
}

#[test]
fn proposals_become_rows() {
    let calls = [
        verifying(&[1, 2], &[7, 8], false),
        verifying(&[3], &[9, 9], false),
    ];
    assert!(can_merge(&calls[0], &calls[1]));
    let (inputs, _) = merged(&[&calls[0], &calls[1]]);
    let expected = Tensor::int32("draft_input_ids", &[2, 2], &[7, 8, 9, 9]);
    assert_eq!(inputs.last(), Some(&expected));
}

/// A verification of this proposal, in a round whose draft length is 3.
fn verifying_up_to_three(proposal: &[i32], task: Task) -> Call {
    let proposal = Proposal {
        tokens: proposal.to_vec(),
        logits: None,
        ..Proposal::default()
    };
    let task = Task {
        prompt: vec![1],
        max_tokens: 20,
        ..task
    };
    Tokens::new(task.into()).verification_call(proposal, 3)
}

/// A task whose sequence has room for three draft tokens and the target's own token.
fn task_with_room() -> Task {
    Task {
        max_seq_len: 5,
        ..Task::default()
    }
}

#[test]
fn shorter_proposals_of_one_draft_length_are_padded() {
    let mut calls =
        [&[7, 8, 9][..], &[6], &[]].map(|tokens| verifying_up_to_three(tokens, task_with_room()));
    assert!(
        calls
            .iter()
            .all(|call| can_merge(&calls[0], call) && can_merge(call, &calls[0]))
    );
    let (inputs, _) = merged(&calls.iter().collect::<Vec<_>>());
    let expected = [
        Tensor::int32("input_ids", &[3, 1], &[1, 1, 1]),
        Tensor::int32("input_lengths", &[3, 1], &[1, 1, 1]),
        Tensor::int32("request_output_len", &[3, 1], &[4, 4, 4]),
        Tensor::int32("draft_input_ids", &[3, 3], &[7, 8, 9, 6, 0, 0, 0, 0, 0]),
    ];
    assert_eq!(inputs, expected);
    let (inputs, _) = merged(&[&calls[1], &calls[2]]);
    assert_eq!(inputs[2].integers(), [2, 2]);
    assert_eq!(
        inputs[3],
        Tensor::int32("draft_input_ids", &[2, 1], &[6, 0])
    );
    // Without any proposal there are no draft tokens to verify.
    let (inputs, _) = merged(&[&calls[2], &calls[2]]);
    assert_eq!((inputs.len(), inputs[2].integers()), (3, vec![1, 1]));
    let inputs = single(&mut calls[2]);
    assert_eq!((inputs.len(), inputs[2].integers()), (3, vec![1]));
}

#[test]
fn calls_that_cannot_be_padded_are_not_merged() {
    let full = verifying_up_to_three(&[7, 8, 9], task_with_room());
    let cases = [
        // A sequence without room for padding, an unknown sequence length, and sampled answers.
        Task {
            max_seq_len: 4,
            ..Task::default()
        },
        Task::default(),
        Task {
            seed: Some(3),
            ..task_with_room()
        },
        Task {
            use_draft_logits: true,
            ..task_with_room()
        },
    ];
    for task in cases {
        let call = verifying_up_to_three(&[7], task);
        assert!(!can_merge(&full, &call), "{call:?}");
    }
}

#[test]
fn shortened_draft_asks_for_fewer_tokens() {
    let mut call = drafting(&[1, 2], 4, vec![]);
    assert!(call.may_shorten);
    shorten(&mut call, 2);
    let expected = [
        Tensor::int32("input_ids", &[1, 2], &[1, 2]),
        Tensor::int32("input_lengths", &[1, 1], &[2]),
        Tensor::int32("request_output_len", &[1, 1], &[2]),
        Tensor::int32("min_length", &[1, 1], &[2]),
    ];
    assert_eq!(
        (call.inputs.as_slice(), call.draft_tokens),
        (expected.as_slice(), 2)
    );
}

#[test]
fn calls_with_different_inputs_are_not_merged() {
    let base = verifying(&[1], &[7, 8], false);
    let stop_words = |count| {
        Tensor::int32(
            "stop_words_list",
            &[1, 2, count],
            &vec![1; 2 * count as usize],
        )
    };
    let pairs = [
        // Another draft length, no proposal, and other outputs.
        (base.clone(), verifying(&[1], &[7], false)),
        (base.clone(), verifying(&[1], &[], false)),
        (base.clone(), verifying(&[1], &[7, 8], true)),
        // Stop words of other lengths, an input of only one call, and inputs of other types.
        (
            drafting(&[1], 4, vec![stop_words(1)]),
            drafting(&[1], 4, vec![stop_words(2)]),
        ),
        (
            drafting(&[1], 4, vec![Tensor::scalar("runtime_top_k", 3)]),
            drafting(&[1], 4, vec![]),
        ),
        (
            drafting(&[1], 4, vec![Tensor::scalar("temperature", 3)]),
            drafting(&[1], 4, vec![Tensor::fp32("temperature", &[1, 1], &[3.0])]),
        ),
        (
            drafting(&[1], 4, vec![Tensor::scalar("one", 3)]),
            drafting(&[1], 4, vec![Tensor::scalar("other", 3)]),
        ),
    ];
    for (left, right) in &pairs {
        assert!(
            can_merge(left, left) && !can_merge(left, right) && !can_merge(right, left),
            "{right:?}"
        );
    }
    // A tensor without a batch dimension cannot become a row.
    let flat = drafting(&[1], 4, vec![Tensor::int32("lora_task_id", &[2], &[1, 2])]);
    assert!(!can_merge(&flat, &flat));
}

#[test]
fn single_call_is_unchanged() {
    let call = drafting(&[1, 2], 3, vec![]);
    let (inputs, outputs) = merged(&[&call]);
    assert_eq!(inputs, call.inputs);
    assert_eq!(outputs.last().map(AsRef::as_ref), Some("batch_index"));
    assert_eq!(call.role, Role::Draft);
    assert!(merged(&[]).0.is_empty());
}
