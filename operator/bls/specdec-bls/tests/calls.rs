//! What the engines' calls carry, and what is read from their answers.

use common::model::{integer, integers};
use common::{MIN_NAMES, Run, VOCABULARY, plain, task};
use triton::{DataType, Tensor};
use triton_specdec::engine::{find, new_tokens};
use triton_specdec::task::Task;

mod common;

#[test]
fn the_draft_is_forced_and_the_target_keeps_the_users_minimum() {
    for [name, other] in [MIN_NAMES, [MIN_NAMES[1], MIN_NAMES[0]]] {
        let task = Task {
            min_tokens: 6,
            min_name: name,
            ..task(12, 3)
        };
        let made = Run::new(1, 1).make(task);
        assert!(!made.draft.calls.is_empty());
        for call in &made.draft.calls {
            assert_eq!(integer(call, name), integer(call, "request_output_len"));
            assert_eq!(integer(call, other), None);
        }
        for call in &made.target.calls {
            let done = integer(call, "input_lengths").unwrap() - 3;
            assert_eq!(integer(call, name), (done < 6).then_some(6 - done));
            assert_eq!(integer(call, other), None);
        }
    }
}

#[test]
fn every_call_carries_what_both_engines_take() {
    let bias = Tensor::fp32("embedding_bias", &[1, 4], &[1.0, 0.0, 2.0, 0.0]);
    let seed = Tensor::new("random_seed", DataType::Uint64, &[1, 1], vec![9; 8]);
    let task = Task {
        end_id: -1,
        common: vec![bias.clone(), seed.clone()],
        ..task(9, 2)
    };
    let made = Run::new(1, 2).make(task);
    assert!(made.target.calls.len() > 1);
    for call in made.target.calls.iter().chain(&made.draft.calls) {
        assert_eq!(find(&call.inputs, "embedding_bias"), Some(&bias));
        assert_eq!(find(&call.inputs, "random_seed"), Some(&seed));
    }
}

#[test]
fn a_plain_stream_makes_calls_of_growing_length() {
    let endless = Task {
        min_tokens: 30,
        stream: true,
        ..task(30, 0)
    };
    let made = Run::new(4, None).make(endless.clone());
    let tokens: Vec<_> = made.parts.iter().map(|part| part.tokens).collect();
    assert_eq!(tokens, [1, 2, 4, 8, 8, 7]);
    let asked = made.target.calls.iter();
    let asked: Vec<_> = asked
        .map(|call| integer(call, "request_output_len").unwrap())
        .collect();
    assert_eq!(asked, [1, 2, 4, 8, 8, 7]);
    let found = made.target.calls.iter();
    assert!(
        found
            .flat_map(|call| &call.inputs)
            .all(|one| one.name != "streaming")
    );
    for name in ["return_generation_logits", "guided_decoding_guide"] {
        let task = Task {
            plain: vec![Tensor::flag(name)],
            ..endless.clone()
        };
        // What spans the answer stays in one call.
        let made = Run::new(4, None).make(task);
        assert_eq!((made.parts.len(), made.target.calls.len()), (1, 1));
        assert_eq!(made.parts[0].tokens, 30);
    }
}

#[test]
fn an_answer_without_its_prefix_is_refused() {
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
fn draft_logits_pass_through() {
    for exclude_input in [false, true] {
        let task = Task {
            prompt: vec![5],
            use_draft_logits: true,
            exclude_input,
            min_tokens: 8,
            ..task(8, 3)
        };
        let made = Run::new(7, 7).make(task);
        assert_eq!(made.text().starts_with('5'), !exclude_input);
        let handed = find(&made.target.calls[0].inputs, "draft_logits").unwrap();
        assert_eq!(handed.shape, [1, 3, i64::from(VOCABULARY)]);
        assert_eq!(handed.floats(), [2.0; 3 * VOCABULARY as usize]);
    }
}

#[test]
fn a_draft_without_logits_is_named_and_left_out() {
    let mut run = Run::new(7, 7);
    run.draft.as_mut().unwrap().gives_logits = false;
    let task = Task {
        use_draft_logits: true,
        ..task(12, 3)
    };
    let made = run.make(task.clone());
    assert_eq!(made.text(), plain(&task, 7));
    assert_eq!(made.counts.reasons.len(), 1);
    assert!(made.counts.reasons[0].contains("no generation logits"));
}

#[test]
fn nothing_bends_what_is_drawn_where_logits_are_compared() {
    let task = Task {
        use_draft_logits: true,
        min_tokens: 5,
        ..task(20, 3)
    };
    let made = Run::new(7, 9).make(task);
    for call in &made.draft.calls {
        let done = integers(call, "input_ids").len() - 3;
        let held = integer(call, MIN_NAMES[0]);
        // Either no proposal reaches the end of the minimum, or the end is a token like any other.
        let length = integer(call, "request_output_len");
        assert_eq!(held, (done < 5).then_some(length.unwrap()));
        assert_eq!(integer(call, "end_id"), (done >= 5).then_some(-1));
        assert!(done >= 5 || done as i64 + length.unwrap() <= 5);
    }
}
