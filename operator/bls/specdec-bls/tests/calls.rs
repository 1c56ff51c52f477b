//! The inputs of engine calls, and how their results are read.

use std::sync::Arc;

use support::engine::{integer, integers};
use support::{MIN_NAMES, Run, VOCABULARY, target_only_text, task};
use triton::{DataType, Tensor};
use triton_specdec::engine::{find, new_tokens};
use triton_specdec::request::task::Task;
use triton_specdec::sequence::tokens::Tokens;

mod support;

#[test]
fn draft_has_its_own_minimum_and_the_target_that_of_the_client() {
    for [name, other] in [MIN_NAMES, [MIN_NAMES[1], MIN_NAMES[0]]] {
        let task = Task {
            min_tokens: 6,
            min_tokens_name: name,
            ..task(12, 3)
        };
        let outcome = Run::new(1, 1).finish(task);
        assert!(!outcome.draft.calls.is_empty());
        for call in &outcome.draft.calls {
            assert_eq!(integer(call, name), integer(call, "request_output_len"));
            assert_eq!(integer(call, other), None);
        }
        for call in &outcome.target.calls {
            let done = integer(call, "input_lengths").unwrap() - 3;
            assert_eq!(integer(call, name), (done < 6).then_some(6 - done));
            assert_eq!(integer(call, other), None);
        }
    }
}

#[test]
fn every_call_carries_the_common_inputs() {
    let bias = Tensor::fp32("embedding_bias", &[1, 4], &[1.0, 0.0, 2.0, 0.0]);
    let seed = Tensor::new("random_seed", DataType::Uint64, &[1, 1], vec![9; 8]);
    let task = Task {
        end_id: -1,
        common: vec![bias.clone(), seed.clone()],
        ..task(9, 2)
    };
    let outcome = Run::new(1, 2).finish(task);
    assert!(outcome.target.calls.len() > 1);
    for call in outcome.target.calls.iter().chain(&outcome.draft.calls) {
        assert_eq!(find(&call.inputs, "embedding_bias"), Some(&bias));
        assert_eq!(find(&call.inputs, "random_seed"), Some(&seed));
    }
}

#[test]
fn target_only_stream_is_one_streamed_call() {
    let endless = Task {
        min_tokens: 30,
        stream: true,
        ..task(30, 0)
    };
    let outcome = Run::new(4, None).finish(endless);
    let tokens: Vec<_> = outcome.parts.iter().map(|part| part.tokens).collect();
    assert_eq!(tokens, [1; 30]);
    let [call] = outcome.target.calls.as_slice() else {
        panic!("{} calls", outcome.target.calls.len())
    };
    assert_eq!(integer(call, "request_output_len"), Some(30));
    assert_eq!(integer(call, "min_length"), Some(30));
    assert!(find(&call.inputs, "streaming").is_some());
}

#[test]
fn streamed_response_with_more_tokens_than_requested_is_refused() {
    let mut tokens = Tokens::new(Arc::new(task(9, 0)));
    let response = support::engine::streamed(&[5, 6, 7]);
    let error = tokens.streamed(2, &response, false).unwrap_err();
    let message = "tensorrt_llm answered 3 tokens to a streamed call for 2: use a backend";
    assert!(error.message().starts_with(message), "{error:?}");
}

#[test]
fn stream_of_an_engine_that_cannot_stream_makes_calls_of_growing_length() {
    let endless = Task {
        min_tokens: 30,
        stream: true,
        ..task(30, 0)
    };
    let mut run = Run::new(4, None);
    run.streams = false;
    let outcome = run.finish(endless.clone());
    let tokens: Vec<_> = outcome.parts.iter().map(|part| part.tokens).collect();
    assert_eq!(tokens, [1, 2, 4, 8, 8, 7]);
    let requested = outcome.target.calls.iter();
    let requested: Vec<_> = requested
        .map(|call| integer(call, "request_output_len").unwrap())
        .collect();
    assert_eq!(requested, [1, 2, 4, 8, 8, 7]);
    let calls = outcome.target.calls.iter();
    assert!(
        calls
            .flat_map(|call| &call.inputs)
            .all(|item| item.name != "streaming")
    );
    for name in ["return_generation_logits", "guided_decoding_guide"] {
        let task = Task {
            target_only_inputs: vec![Tensor::flag(name)],
            ..endless.clone()
        };
        // With an input that covers the whole answer, one call has to decode all of it.
        let mut run = Run::new(4, None);
        run.streams = false;
        let outcome = run.finish(task);
        assert_eq!((outcome.parts.len(), outcome.target.calls.len()), (1, 1));
        assert_eq!(outcome.parts[0].tokens, 30);
    }
}

#[test]
fn result_without_its_prefix_is_refused() {
    let answer = [
        Tensor::int32("output_ids", &[1, 1, 2], &[1, 2]),
        Tensor::scalar("sequence_length", 2),
    ];
    let error = new_tokens(&answer, 3, "tensorrt_llm").unwrap_err();
    assert!(error.message().contains("exclude_input_in_output to false"));
    assert_eq!(new_tokens(&answer, 1, "tensorrt_llm"), Ok(vec![2]));
    assert_eq!(new_tokens(&answer[1..], 2, "tensorrt_llm"), Ok(vec![]));
}

#[test]
fn draft_logits_are_passed_on() {
    for exclude_input in [false, true] {
        let task = Task {
            prompt: vec![5],
            use_draft_logits: true,
            exclude_input,
            min_tokens: 8,
            ..task(8, 3)
        };
        let outcome = Run::new(7, 7).finish(task);
        assert_eq!(outcome.text().starts_with('5'), !exclude_input);
        let logits = find(&outcome.target.calls[0].inputs, "draft_logits").unwrap();
        assert_eq!(logits.shape, [1, 3, i64::from(VOCABULARY)]);
        assert_eq!(logits.floats(), [2.0; 3 * VOCABULARY as usize]);
    }
}

#[test]
fn draft_without_logits_is_reported_and_not_used() {
    let mut run = Run::new(7, 7);
    run.draft.as_mut().unwrap().gives_logits = false;
    let task = Task {
        use_draft_logits: true,
        ..task(12, 3)
    };
    let outcome = run.finish(task.clone());
    assert_eq!(outcome.text(), target_only_text(&task, 7));
    assert_eq!(outcome.draft_errors.len(), 1);
    assert!(outcome.draft_errors[0].contains("no generation logits"));
}

#[test]
fn draft_samples_freely_where_logits_are_compared() {
    let task = Task {
        use_draft_logits: true,
        min_tokens: 5,
        ..task(20, 3)
    };
    let outcome = Run::new(7, 9).finish(task);
    for call in &outcome.draft.calls {
        let done = integers(call, "input_ids").len() - 3;
        let minimum = integer(call, MIN_NAMES[0]);
        // No proposal exceeds the client's minimum. After it, the end is an ordinary token.
        let length = integer(call, "request_output_len");
        assert_eq!(minimum, (done < 5).then_some(length.unwrap()));
        assert_eq!(integer(call, "end_id"), (done >= 5).then_some(-1));
        assert!(done >= 5 || done as i64 + length.unwrap() <= 5);
    }
}
