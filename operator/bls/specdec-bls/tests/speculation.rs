//! The loop against engines of a few lines: no token may change, whatever happens.

use common::numbers::Numbers;
use common::restless::Restless;
use common::{MIN_NAMES, Run, plain, task, words};
use triton_specdec::answer::End;
use triton_specdec::error::Error;
use triton_specdec::task::Task;

mod common;

#[test]
fn speculation_changes_no_token() {
    for seed in 0..2000 {
        let mut numbers = Numbers::new(seed);
        let length = numbers.between(0, 8);
        let task = Task {
            min_tokens: numbers.between(0, 12),
            min_name: MIN_NAMES[numbers.between(0, 1)],
            stop_words: words(&mut numbers, 4),
            stream: seed % 2 == 0,
            ..task(numbers.between(1, 40), length)
        };
        // One draft of four is the target itself: everything is accepted.
        let other = numbers.between(0, 3) as u64;
        let made = Run::new(seed.into(), u64::from(seed) + other).make(task.clone());
        assert_eq!(made.text(), plain(&task, seed.into()), "seed {seed}");
        assert!(task.stream || made.parts.len() == 1);
        let counts = &made.counts;
        let tokens: usize = made.parts.iter().map(|part| part.tokens).sum();
        assert_eq!(tokens, counts.generated);
        assert!(counts.accepted <= counts.drafted);
        if other == 0 && length > 0 {
            assert!(counts.accepted >= counts.generated - counts.rounds);
        }
    }
}

#[test]
fn no_order_of_rounds_and_plain_stretches_changes_a_token() {
    for seed in 0..2000 {
        let mut numbers = Numbers::new(seed);
        let task = Task {
            adaptive: true,
            min_tokens: numbers.between(0, 12),
            stop_words: words(&mut numbers, 3),
            stream: seed % 2 == 0,
            ..task(numbers.between(1, 40), 4)
        };
        let (lengths, told) = Restless::new(seed);
        let mut run = Run::new(seed.into(), u64::from(seed) + numbers.between(0, 1) as u64);
        run.lengths = Some(lengths);
        let made = run.make(task.clone());
        assert_eq!(made.text(), plain(&task, seed.into()), "seed {seed}");
        let told = told.lock().unwrap();
        assert_eq!(told.closed, 1);
        assert_eq!(told.accepted, made.counts.accepted);
        assert!(told.plain <= made.counts.generated);
    }
}

#[test]
fn a_broken_draft_leaves_the_answer_to_the_target() {
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
                let (lengths, told) = Restless::new(1);
                let mut run = Run::new(3, 3);
                run.lengths = (calls == 2).then_some(lengths as _);
                run.draft.as_mut().unwrap().refuses_after = Some((calls, error.clone()));
                let made = run.make(task.clone());
                assert_eq!(made.text(), plain(&task, 3));
                assert_eq!(made.counts.reasons, [error.message()]);
                assert_eq!(made.counts.generated, 30);
                assert_eq!(made.draft.calls.len(), calls + 1);
                assert_eq!(told.lock().unwrap().closed, usize::from(calls == 2));
            }
        }
    }
}

#[test]
fn a_server_without_a_draft_says_so_and_answers() {
    let made = Run::new(3, None).make(task(30, 4));
    assert_eq!(made.text(), plain(&task(30, 4), 3));
    assert_eq!(made.counts.reasons, ["this server has no draft model"]);
}

#[test]
fn a_refusing_target_is_an_error() {
    for draft_tokens in [0, 2] {
        let mut run = Run::new(3, 3);
        run.target.break_after(0);
        let made = run.make(task(5, draft_tokens));
        assert_eq!(
            made.end,
            End::Failed(Error::EngineRefused("it broke".to_owned()))
        );
        assert!(made.parts.is_empty() && made.counts.reasons.is_empty());
    }
}

#[test]
fn a_target_that_died_may_be_asked_again() {
    let mut run = Run::new(3, 3);
    run.target.refuses_after = Some((1, Error::engine_died("tensorrt_llm")));
    // Whether or not the client still waits.
    run.leaves_after = 2;
    let End::Failed(error) = run.make(task(20, 2)).end else {
        panic!("it did not fail");
    };
    assert!(matches!(error, Error::EngineDied(_)));
    let words = "tensorrt_llm: its process ended during the call: \
                 ask again when the server has started again";
    assert_eq!(error.message(), words);
}

#[test]
fn a_target_without_room_may_be_asked_again() {
    for (words, unavailable) in [
        ("tensorrt_llm: Exceeds maximum queue size", true),
        (
            "tensorrt_llm: Maximum queue size of 8 has been reached, please try again later",
            false,
        ),
    ] {
        let mut run = Run::new(3, 3);
        let error = Error::from_engine(words.to_owned(), unavailable);
        run.target.refuses_after = Some((1, error));
        let End::Failed(error) = run.make(task(20, 2)).end else {
            panic!("it did not fail");
        };
        assert!(matches!(error, Error::EngineBusy(_)));
        assert_eq!(
            error.message(),
            format!("{words}: send the request again later")
        );
    }
    let refused = Error::from_engine("no", false);
    assert_eq!(refused, Error::EngineRefused("no".to_owned()));
}

#[test]
fn cancelling_ends_after_the_round() {
    for draft_tokens in [0, 1] {
        let task = Task {
            end_id: -1,
            min_tokens: 40,
            stream: true,
            ..task(40, draft_tokens)
        };
        let mut run = Run::new(4, 5);
        run.leaves_after = 2;
        let made = run.make(task);
        assert_eq!((made.end, made.target.calls.len()), (End::Cancelled, 2));
        assert_eq!(made.parts.len(), 2);
    }
}

#[test]
fn who_has_gone_gets_no_whole_answer_and_no_error() {
    let mut run = Run::new(4, 5);
    run.leaves_after = 2;
    let made = run.make(task(40, 1));
    assert_eq!((made.end, made.parts.len()), (End::Cancelled, 0));
    let mut run = Run::new(4, 5);
    run.leaves_after = 2;
    run.target.break_after(1);
    assert_eq!(run.make(task(40, 1)).end, End::Cancelled);
}

#[test]
fn log_probs_of_the_whole_answer() {
    for draft_tokens in [0, 3] {
        for stream in [false, true] {
            let task = Task {
                end_id: -1,
                min_tokens: 12,
                log_probs: true,
                stream,
                ..task(12, draft_tokens)
            };
            let made = Run::new(6, 6).make(task);
            let of_token = |letter: char| -((letter as i32 - '0' as i32) as f32);
            let wanted: Vec<f32> = made.text().chars().map(of_token).collect();
            let parts = made.parts.iter();
            let found: Vec<f32> = parts.flat_map(|part| part.log_probs.clone()).collect();
            assert_eq!(found, wanted);
            let sum: f32 = wanted.iter().sum();
            let last = made.parts.last().unwrap();
            assert!((last.cum_log_prob - f64::from(sum)).abs() < 1e-6);
        }
    }
}

#[test]
fn stop_words_inside_a_chunk_cut_the_text() {
    for seed in 0..300 {
        let mut numbers = Numbers::new(seed);
        let base = task(40, numbers.between(0, 5));
        let full = plain(&base, seed.into());
        let mut words = vec!["zz".to_owned(), "never".to_owned()];
        if full.len() > 3 {
            let begin = numbers.between(0, full.len() - 3);
            words.push(full[begin..begin + numbers.between(1, 3)].to_owned());
        }
        let task = Task {
            stop_texts: words,
            stream: seed % 2 == 0,
            log_probs: true,
            ..base
        };
        let made = Run::new(seed.into(), u64::from(seed)).make(task.clone());
        let wanted = plain(&task, seed.into());
        assert_eq!(made.text(), wanted, "seed {seed}");
        let tokens: usize = made.parts.iter().map(|part| part.tokens).sum();
        let log_probs: usize = made.parts.iter().map(|part| part.log_probs.len()).sum();
        assert_eq!((tokens, log_probs), (wanted.len(), wanted.len()));
    }
}
