//! Runs sequences with simulated engines. Speculation changes no token, also after failures.

use support::changing_policy::ChangingPolicy;
use support::numbers::Numbers;
use support::{MIN_NAMES, Run, stop_words, target_only_text, task};
use triton_specdec::error::Error;
use triton_specdec::request::task::Task;
use triton_specdec::sequence::End;

mod support;

#[test]
fn speculation_changes_no_token() {
    for seed in 0..2000 {
        let mut numbers = Numbers::new(seed);
        let length = numbers.between(0, 8);
        let task = Task {
            min_tokens: numbers.between(0, 12),
            min_tokens_name: MIN_NAMES[numbers.between(0, 1)],
            stop_words: stop_words(&mut numbers, 4),
            stream: seed % 2 == 0,
            ..task(numbers.between(1, 40), length)
        };
        // In one case of four the draft equals the target, which then accepts every token.
        let other = numbers.between(0, 3) as u64;
        let outcome = Run::new(seed.into(), u64::from(seed) + other).finish(task.clone());
        assert_eq!(
            outcome.text(),
            target_only_text(&task, seed.into()),
            "seed {seed}"
        );
        assert!(task.stream || outcome.parts.len() == 1);
        let counts = &outcome.counts;
        let tokens: usize = outcome.parts.iter().map(|part| part.tokens).sum();
        assert_eq!(tokens, counts.generated);
        assert!(counts.accepted <= counts.drafted);
        if other == 0 && length > 0 {
            assert!(counts.accepted >= counts.generated - counts.rounds);
        }
    }
}

#[test]
fn rounds_and_target_only_runs_in_any_order_change_no_token() {
    for seed in 0..2000 {
        let mut numbers = Numbers::new(seed);
        let task = Task {
            adaptive: true,
            min_tokens: numbers.between(0, 12),
            stop_words: stop_words(&mut numbers, 3),
            stream: seed % 2 == 0,
            ..task(numbers.between(1, 40), 4)
        };
        let (policy, reports) = ChangingPolicy::new(seed);
        let mut run = Run::new(seed.into(), u64::from(seed) + numbers.between(0, 1) as u64);
        run.policy = Some(policy);
        let outcome = run.finish(task.clone());
        assert_eq!(
            outcome.text(),
            target_only_text(&task, seed.into()),
            "seed {seed}"
        );
        let reports = reports.lock().unwrap();
        assert_eq!(reports.closed, 1);
        assert_eq!(reports.accepted, outcome.counts.accepted);
        assert!(reports.target_only <= outcome.counts.generated);
    }
}

#[test]
fn target_completes_the_answer_when_the_draft_fails() {
    for stream in [false, true] {
        for error in [
            Error::EngineRefused("it broke".to_owned()),
            Error::engine_died("tensorrt_llm_draft"),
        ] {
            for calls in 0..3 {
                let task = Task {
                    stream,
                    min_tokens: 30,
                    ..task(30, 4)
                };
                let (policy, reports) = ChangingPolicy::new(1);
                let mut run = Run::new(3, 3);
                run.policy = (calls == 2).then_some(policy as _);
                run.draft.as_mut().unwrap().refuses_after = Some((calls, error.clone()));
                let outcome = run.finish(task.clone());
                assert_eq!(outcome.text(), target_only_text(&task, 3));
                assert_eq!(outcome.draft_errors, [error.message()]);
                assert_eq!(outcome.counts.generated, 30);
                assert_eq!(outcome.draft.calls.len(), calls + 1);
                assert_eq!(reports.lock().unwrap().closed, usize::from(calls == 2));
            }
        }
    }
}

#[test]
fn missing_draft_is_reported_and_the_target_answers() {
    let outcome = Run::new(3, None).finish(task(30, 4));
    assert_eq!(outcome.text(), target_only_text(&task(30, 4), 3));
    assert_eq!(outcome.draft_errors, ["this server has no draft model"]);
}

#[test]
fn refusal_of_the_target_ends_with_an_error() {
    for draft_tokens in [0, 2] {
        let mut run = Run::new(3, 3);
        run.target.break_after(0);
        let outcome = run.finish(task(5, draft_tokens));
        assert_eq!(
            outcome.end,
            End::Failed(Error::EngineRefused("it broke".to_owned()))
        );
        assert!(outcome.parts.is_empty() && outcome.draft_errors.is_empty());
    }
}

#[test]
fn death_of_the_target_advises_to_wait_for_the_restart() {
    let mut run = Run::new(3, 3);
    run.target.refuses_after = Some((1, Error::engine_died("tensorrt_llm")));
    // The client has disconnected, but the error is reported anyway.
    run.disconnects_after = 2;
    let End::Failed(error) = run.finish(task(20, 2)).end else {
        panic!("it did not fail");
    };
    assert!(matches!(error, Error::EngineDied(_)));
    let message = "tensorrt_llm: its process ended during the call: \
                 ask again when the server has started again";
    assert_eq!(error.message(), message);
}

#[test]
fn full_queue_of_the_target_advises_to_send_again_later() {
    for (message, unavailable) in [
        ("tensorrt_llm: Exceeds maximum queue size", true),
        (
            "tensorrt_llm: Maximum queue size of 8 has been reached, please try again later",
            false,
        ),
    ] {
        let mut run = Run::new(3, 3);
        let error = Error::from_engine(message.to_owned(), unavailable);
        run.target.refuses_after = Some((1, error));
        let End::Failed(error) = run.finish(task(20, 2)).end else {
            panic!("it did not fail");
        };
        assert!(matches!(error, Error::EngineBusy(_)));
        assert_eq!(
            error.message(),
            format!("{message}: send the request again later")
        );
    }
    let refused = Error::from_engine("no", false);
    assert_eq!(refused, Error::EngineRefused("no".to_owned()));
}

#[test]
fn cancellation_takes_effect_after_the_round_or_the_next_token() {
    for (draft_tokens, results) in [(0, 1), (1, 2)] {
        let task = Task {
            end_id: -1,
            min_tokens: 40,
            stream: true,
            ..task(40, draft_tokens)
        };
        let mut run = Run::new(4, 5);
        run.disconnects_after = 2;
        let outcome = run.finish(task);
        assert_eq!(
            (outcome.end, outcome.target.calls.len()),
            (End::Cancelled, results)
        );
        assert_eq!(outcome.parts.len(), results);
    }
}

#[test]
fn disconnected_client_gets_neither_answer_nor_error() {
    let mut run = Run::new(4, 5);
    run.disconnects_after = 2;
    let outcome = run.finish(task(40, 1));
    assert_eq!((outcome.end, outcome.parts.len()), (End::Cancelled, 0));
    let mut run = Run::new(4, 5);
    run.disconnects_after = 2;
    run.target.break_after(1);
    assert_eq!(run.finish(task(40, 1)).end, End::Cancelled);
}

#[test]
fn log_probs_cover_the_whole_answer() {
    for draft_tokens in [0, 3] {
        for stream in [false, true] {
            let task = Task {
                end_id: -1,
                min_tokens: 12,
                log_probs: true,
                stream,
                ..task(12, draft_tokens)
            };
            let outcome = Run::new(6, 6).finish(task);
            let of_token = |letter: char| -((letter as i32 - '0' as i32) as f32);
            let expected: Vec<f32> = outcome.text().chars().map(of_token).collect();
            let parts = outcome.parts.iter();
            let log_probs: Vec<f32> = parts.flat_map(|part| part.log_probs.clone()).collect();
            assert_eq!(log_probs, expected);
            let sum: f32 = expected.iter().sum();
            let last = outcome.parts.last().unwrap();
            assert!((last.cum_log_prob - f64::from(sum)).abs() < 1e-6);
        }
    }
}

#[test]
fn stop_words_inside_a_chunk_cut_the_text() {
    for seed in 0..300 {
        let mut numbers = Numbers::new(seed);
        let base = task(40, numbers.between(0, 5));
        let full = target_only_text(&base, seed.into());
        let mut stop_texts = vec!["zz".to_owned(), "never".to_owned()];
        if full.len() > 3 {
            let begin = numbers.between(0, full.len() - 3);
            stop_texts.push(full[begin..begin + numbers.between(1, 3)].to_owned());
        }
        let task = Task {
            stop_texts,
            stream: seed % 2 == 0,
            log_probs: true,
            ..base
        };
        let outcome = Run::new(seed.into(), u64::from(seed)).finish(task.clone());
        let expected = target_only_text(&task, seed.into());
        assert_eq!(outcome.text(), expected, "seed {seed}");
        let tokens: usize = outcome.parts.iter().map(|part| part.tokens).sum();
        let log_probs: usize = outcome.parts.iter().map(|part| part.log_probs.len()).sum();
        assert_eq!((tokens, log_probs), (expected.len(), expected.len()));
    }
}
