//! Rounds whose proposals come from lookups: greedy answers stay those of the target alone. Text
//! without repetitions is decoded in one streamed call, or in pieces if it cannot be streamed.

use support::changing_policy::ChangingPolicy;
use support::engine::{Engine, integer, integers, next};
use support::numbers::Numbers;
use support::{END, Letters, Run, task};
use triton::Tensor;
use triton_specdec::engine::{Call, Role, find};
use triton_specdec::request::task::Task;
use triton_specdec::tokenizer::Tokenizer;

mod support;

const CASES: u32 = 600;

/// A language that repeats itself: mostly, the last two tokens determine the next one.
fn repetitive(seed: u64, ids: &[i32], no_end: bool) -> i32 {
    let surprise = next(seed, ids, true) % 9 == 0;
    let begin = if surprise {
        0
    } else {
        ids.len().saturating_sub(2)
    };
    let token = next(seed, &ids[begin..], no_end);
    // The end must remain rare, or no answer is long enough for a match.
    if token == END && !surprise { 3 } else { token }
}

fn target(seed: u64) -> Engine {
    let language = move |ids: &[i32], no_end| repetitive(seed, ids, no_end);
    Engine::new(Role::Target, END, Box::new(language))
}

/// The answer of the target alone.
fn target_only(task: &Task, seed: u64) -> String {
    let mut ids = task.prompt.clone();
    while ids.len() < task.prompt.len() + task.max_tokens {
        match repetitive(seed, &ids, false) {
            END => break,
            token => ids.push(token),
        }
    }
    Letters.decode(&ids[task.prompt.len()..])
}

fn lookup_task(max_tokens: usize, draft_tokens: usize) -> Task {
    Task {
        max_draft_tokens: 8,
        ..task(max_tokens, draft_tokens)
    }
}

fn lengths(calls: &[Call]) -> Vec<i64> {
    let length = |call: &Call| integer(call, "request_output_len");
    calls.iter().filter_map(length).collect()
}

/// After the prompt 5 6 7, positions 9 and 10 are 5 and 6 again, and 7 follows.
fn with_match(ids: &[i32], _: bool) -> i32 {
    match ids.len() {
        9 => 5,
        10 => 6,
        11 => 7,
        length => length as i32 + 20,
    }
}

#[test]
fn greedy_answers_equal_those_of_the_target_alone() {
    let (mut accepted, mut rejected, mut of_model) = (0, 0, 0);
    for seed in 0..CASES {
        let mut numbers = Numbers::new(seed);
        let prompt = (0..numbers.between(1, 40)).map(|_| numbers.between(1, 6) as i32);
        let prompt = prompt.collect();
        let task = Task {
            prompt,
            stream: numbers.between(0, 1) == 0,
            ..lookup_task(numbers.between(1, 80), numbers.between(1, 8))
        };
        let mut run = Run::new(0, None);
        run.target = target(seed.into());
        run.min_match = Some(numbers.between(1, 3));
        run.streams = numbers.between(0, 2) > 0;
        if numbers.between(0, 2) == 0 {
            run.draft = Some(Engine::draft(seed.into()));
        }
        if numbers.between(0, 1) == 0 {
            run.policy = Some(ChangingPolicy::new(seed).0);
        }
        let outcome = run.finish(task.clone());
        assert_eq!(
            outcome.text(),
            target_only(&task, seed.into()),
            "seed {seed}: {task:?}"
        );
        let lookup = outcome.lookup;
        accepted += lookup.accepted;
        rejected += lookup.drafted - lookup.accepted;
        of_model += outcome.counts.rounds - lookup.rounds;
    }
    let cases = CASES as usize;
    assert!(accepted > cases && rejected > cases && of_model > cases);
}

#[test]
fn text_without_repetitions_is_decoded_in_pieces_by_an_engine_that_cannot_stream() {
    let mut run = Run::new(0, None);
    run.streams = false;
    let count_up = |ids: &[i32], _| ids[ids.len() - 1] + 1;
    run.target = Engine::new(Role::Target, END, Box::new(count_up));
    run.min_match = Some(1);
    let outcome = run.finish(lookup_task(200, 4));
    assert_eq!(lengths(&outcome.target.calls), [8, 24, 64, 64, 40]);
    assert_eq!(outcome.counts.rounds, 0);
}

#[test]
fn text_without_repetitions_is_one_streamed_call() {
    for stream in [false, true] {
        let mut run = Run::new(0, None);
        let count_up = |ids: &[i32], _| ids[ids.len() - 1] + 1;
        run.target = Engine::new(Role::Target, END, Box::new(count_up));
        run.min_match = Some(1);
        let task = Task {
            stream,
            ..lookup_task(30, 4)
        };
        let outcome = run.finish(task);
        let calls = &outcome.target.calls;
        assert_eq!(lengths(calls), [30]);
        assert!(find(&calls[0].inputs, "streaming").is_some());
        assert_eq!(outcome.parts.len(), if stream { 30 } else { 1 });
    }
}

#[test]
fn answer_with_log_probabilities_is_decoded_in_pieces() {
    let mut run = Run::new(0, None);
    let count_up = |ids: &[i32], _| ids[ids.len() - 1] + 1;
    run.target = Engine::new(Role::Target, END, Box::new(count_up));
    run.min_match = Some(1);
    let task = Task {
        log_probs: true,
        stream: true,
        ..lookup_task(30, 4)
    };
    let outcome = run.finish(task);
    assert_eq!(lengths(&outcome.target.calls), [1, 2, 4, 8, 8, 7]);
}

#[test]
fn statistics_of_the_target_leave_lookups_on() {
    let mut run = Run::new(0, None);
    run.target = Engine::new(Role::Target, END, Box::new(|_, _| 1));
    run.min_match = Some(1);
    let statistics = Task {
        target_only_inputs: vec![Tensor::flag("return_perf_metrics")],
        target_only_outputs: vec!["arrival_time_ns".to_owned()],
        ..lookup_task(40, 4)
    };
    assert!(run.finish(statistics).lookup.accepted > 20);
}

#[test]
fn match_ends_a_streamed_call_at_once() {
    let mut run = Run::new(0, None);
    run.target = Engine::new(Role::Target, END, Box::new(with_match));
    run.min_match = Some(2);
    let outcome = run.finish(lookup_task(20, 4));
    let calls = &outcome.target.calls;
    // Of the first call, positions 3 to 10 were used.
    assert_eq!(lengths(calls), [20, 5, 10]);
    assert_eq!(integers(&calls[1], "input_ids").len(), 11);
    assert_eq!(integers(&calls[1], "draft_input_ids")[0], 7);
    assert_eq!(outcome.counts.accepted, 1);
}

#[test]
fn match_ends_a_run_at_the_next_piece_and_the_next_run_begins_short() {
    let mut run = Run::new(0, None);
    run.streams = false;
    run.target = Engine::new(Role::Target, END, Box::new(with_match));
    run.min_match = Some(2);
    let outcome = run.finish(lookup_task(20, 4));
    let drafts: Vec<Vec<i32>> = outcome
        .target
        .calls
        .iter()
        .map(|call| integers(call, "draft_input_ids"))
        .collect();
    assert_eq!(lengths(&outcome.target.calls)[..4], [8, 5, 1, 3]);
    assert_eq!(drafts[1][0], 7);
    assert_eq!(outcome.counts.accepted, 1);
}

#[test]
fn first_call_does_not_wait_for_the_prompt_to_be_learned() {
    let repeated = Task {
        prompt: [1, 2, 3, 4].repeat(8),
        ..lookup_task(20, 4)
    };
    let mut run = Run::new(0, None);
    let language = |ids: &[i32], _| ids[ids.len() - 4];
    run.target = Engine::new(Role::Target, END, Box::new(language));
    run.min_match = Some(2);
    let outcome = run.finish(repeated);
    let calls = &outcome.target.calls;
    assert!(integers(&calls[0], "draft_input_ids").is_empty());
    assert_eq!(integers(&calls[1], "draft_input_ids"), [2, 3, 4, 1]);
    assert_eq!(outcome.lookup.accepted, outcome.lookup.drafted);
}

#[test]
fn lookups_go_on_after_the_draft_model_failed() {
    let mut run = Run::new(0, None);
    run.target = Engine::new(Role::Target, END, Box::new(|ids, _| ids[ids.len() - 3]));
    let mut draft = Engine::draft(1);
    draft.break_after(1);
    run.draft = Some(draft);
    run.min_match = Some(8);
    let outcome = run.finish(lookup_task(60, 4));
    assert_eq!(outcome.draft_errors.len(), 1);
    assert!(outcome.lookup.accepted > 20);
    assert_eq!(outcome.text().len(), 60);
}

#[test]
fn proposals_respect_every_limit() {
    for draft_tokens in [1, 3, 8, 20] {
        let mut run = Run::new(0, None);
        run.target = Engine::new(Role::Target, END, Box::new(|_, _| 1));
        run.min_match = Some(1);
        let outcome = run.finish(lookup_task(25, draft_tokens));
        assert_eq!(outcome.text().len(), 25);
        let longest = outcome
            .target
            .calls
            .iter()
            .map(|call| integers(call, "draft_input_ids").len());
        assert_eq!(longest.max(), Some(draft_tokens.min(8)));
    }
}

#[test]
fn requests_without_drafts_or_with_logits_have_no_lookups() {
    let plain = lookup_task(20, 0);
    let with_logits = Task {
        use_draft_logits: true,
        ..lookup_task(20, 4)
    };
    for (task, draft) in [(plain, None), (with_logits, Some(Engine::draft(1)))] {
        let mut run = Run::new(0, None);
        run.target = Engine::new(Role::Target, END, Box::new(|_, _| 1));
        run.draft = draft;
        run.min_match = Some(1);
        let outcome = run.finish(task);
        assert_eq!(outcome.lookup.rounds, 0);
        assert_eq!(outcome.text().len(), 20);
    }
}
