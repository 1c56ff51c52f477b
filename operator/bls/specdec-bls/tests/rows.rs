//! Calls of several prompts as rows of one.

use triton::Tensor;
use triton_specdec::chunk::Proposal;
use triton_specdec::engine::{Call, Role};
use triton_specdec::generation::Generation;
use triton_specdec::rows::{alike, merged, shorten, single};
use triton_specdec::task::Task;

/// A draft's call behind these tokens.
fn drafting(prompt: &[i32], length: usize, common: Vec<Tensor>) -> Call {
    let task = Task {
        prompt: prompt.to_vec(),
        max_tokens: 20,
        common,
        min_name: "min_length",
        ..Task::default()
    };
    Generation::new(task.into()).proposal(length)
}

fn verifying(prompt: &[i32], proposal: &[i32], log_probs: bool) -> Call {
    let task = Task {
        prompt: prompt.to_vec(),
        max_tokens: 20,
        log_probs,
        ..Task::default()
    };
    let wanted = proposal.len();
    let proposal = Proposal {
        tokens: proposal.to_vec(),
        logits: None,
    };
    Generation::new(task.into()).verification(proposal, wanted)
}

#[test]
fn prefixes_may_differ_in_length() {
    let calls = [
        drafting(&[1, 2, 3], 4, vec![]),
        drafting(&[4], 4, vec![]),
        drafting(&[5, 6], 4, vec![]),
    ];
    assert!(calls.iter().all(|one| alike(&calls[0], one)));
    let (inputs, outputs) = merged(&calls.iter().collect::<Vec<_>>());
    let wanted = [
        Tensor::int32("input_ids", &[3, 3], &[1, 2, 3, 4, 0, 0, 5, 6, 0]),
        Tensor::int32("input_lengths", &[3, 1], &[3, 1, 2]),
        Tensor::int32("request_output_len", &[3, 1], &[4, 4, 4]),
        Tensor::int32("min_length", &[3, 1], &[4, 4, 4]),
    ];
    assert_eq!(inputs, wanted);
    assert_eq!(outputs, ["output_ids", "sequence_length", "batch_index"]);
}

#[test]
fn lengths_may_differ_where_they_are_values() {
    let (one, two) = (drafting(&[1], 4, vec![]), drafting(&[1], 2, vec![]));
    assert!(alike(&one, &two));
    let (inputs, _) = merged(&[&one, &two]);
    assert_eq!(inputs[2].integers(), [4, 2]);
}

#[test]
fn proposals_lie_side_by_side() {
    let calls = [
        verifying(&[1, 2], &[7, 8], false),
        verifying(&[3], &[9, 9], false),
    ];
    assert!(alike(&calls[0], &calls[1]));
    let (inputs, _) = merged(&[&calls[0], &calls[1]]);
    let wanted = Tensor::int32("draft_input_ids", &[2, 2], &[7, 8, 9, 9]);
    assert_eq!(inputs.last(), Some(&wanted));
}

/// A verification of a round of three draft tokens that has so many, behind one token.
fn shorter(proposal: &[i32], task: Task) -> Call {
    let proposal = Proposal {
        tokens: proposal.to_vec(),
        logits: None,
    };
    let task = Task {
        prompt: vec![1],
        max_tokens: 20,
        ..task
    };
    Generation::new(task.into()).verification(proposal, 3)
}

/// An engine whose sequence just takes three draft tokens and one of its own.
fn roomy() -> Task {
    Task {
        max_seq_len: 5,
        ..Task::default()
    }
}

#[test]
fn shorter_proposals_of_one_length_are_filled_up() {
    let mut calls = [&[7, 8, 9][..], &[6], &[]].map(|tokens| shorter(tokens, roomy()));
    assert!(
        calls
            .iter()
            .all(|one| alike(&calls[0], one) && alike(one, &calls[0]))
    );
    let (inputs, _) = merged(&calls.iter().collect::<Vec<_>>());
    let wanted = [
        Tensor::int32("input_ids", &[3, 1], &[1, 1, 1]),
        Tensor::int32("input_lengths", &[3, 1], &[1, 1, 1]),
        Tensor::int32("request_output_len", &[3, 1], &[4, 4, 4]),
        Tensor::int32("draft_input_ids", &[3, 3], &[7, 8, 9, 6, 0, 0, 0, 0, 0]),
    ];
    assert_eq!(inputs, wanted);
    let (inputs, _) = merged(&[&calls[1], &calls[2]]);
    assert_eq!(inputs[2].integers(), [2, 2]);
    assert_eq!(
        inputs[3],
        Tensor::int32("draft_input_ids", &[2, 1], &[6, 0])
    );
    // With nothing proposed at all there is nothing to verify.
    let (inputs, _) = merged(&[&calls[2], &calls[2]]);
    assert_eq!((inputs.len(), inputs[2].integers()), (3, vec![1, 1]));
    let inputs = single(&mut calls[2]);
    assert_eq!((inputs.len(), inputs[2].integers()), (3, vec![1]));
}

#[test]
fn what_may_not_be_filled_up_goes_alone() {
    let full = shorter(&[7, 8, 9], roomy());
    let cases = [
        // No room in the engine's sequence, or nobody knows; answers that are drawn.
        Task {
            max_seq_len: 4,
            ..Task::default()
        },
        Task::default(),
        Task {
            seed: Some(3),
            ..roomy()
        },
        Task {
            use_draft_logits: true,
            ..roomy()
        },
    ];
    for task in cases {
        let one = shorter(&[7], task);
        assert!(!alike(&full, &one), "{one:?}");
    }
}

#[test]
fn a_shortened_draft_asks_for_fewer() {
    let mut call = drafting(&[1, 2], 4, vec![]);
    assert!(call.shortens);
    shorten(&mut call, 2);
    let wanted = [
        Tensor::int32("input_ids", &[1, 2], &[1, 2]),
        Tensor::int32("input_lengths", &[1, 1], &[2]),
        Tensor::int32("request_output_len", &[1, 1], &[2]),
        Tensor::int32("min_length", &[1, 1], &[2]),
    ];
    assert_eq!(
        (call.inputs.as_slice(), call.drafts),
        (wanted.as_slice(), 2)
    );
}

#[test]
fn what_does_not_lie_side_by_side_goes_alone() {
    let base = verifying(&[1], &[7, 8], false);
    let words = |count| {
        Tensor::int32(
            "stop_words_list",
            &[1, 2, count],
            &vec![1; 2 * count as usize],
        )
    };
    let pairs = [
        // Proposals of other lengths, none at all, other outputs.
        (base.clone(), verifying(&[1], &[7], false)),
        (base.clone(), verifying(&[1], &[], false)),
        (base.clone(), verifying(&[1], &[7, 8], true)),
        // Words in lists of other lengths, and only one of both with a value.
        (
            drafting(&[1], 4, vec![words(1)]),
            drafting(&[1], 4, vec![words(2)]),
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
    for (one, two) in &pairs {
        assert!(
            alike(one, one) && !alike(one, two) && !alike(two, one),
            "{two:?}"
        );
    }
    // What has no row of its own cannot be one of several.
    let flat = drafting(&[1], 4, vec![Tensor::int32("lora_task_id", &[2], &[1, 2])]);
    assert!(!alike(&flat, &flat));
}

#[test]
fn a_row_alone_stays_as_it_is() {
    let call = drafting(&[1, 2], 3, vec![]);
    let (inputs, outputs) = merged(&[&call]);
    assert_eq!(inputs, call.inputs);
    assert_eq!(outputs.last().map(AsRef::as_ref), Some("batch_index"));
    assert_eq!(call.role, Role::Draft);
    assert!(merged(&[]).0.is_empty());
}
