//! Sequences that search the memory of their scope: the same answers, and no trace of other scopes.

use std::sync::Arc;
use std::time::Instant;

use support::engine::{integers, next};
use support::numbers::Numbers;
use support::{Letters, Outcome, Run, target_only_text, task};
use triton_specdec::engine::Call;
use triton_specdec::lookup::memory::Memory;
use triton_specdec::request::task::Task;
use triton_specdec::tokenizer::Tokenizer;

mod support;

const MEGABYTE: usize = 1 << 20;
const SEED: u64 = 3;
/// The lengths of the two samples whose times are compared.
const SAMPLES: usize = 2_000;
/// A difference of the mean ranks in standard errors. Equal distributions exceed it in 1 of 10^9
/// comparisons.
const SIGNIFICANT: f64 = 6.1;

fn memory_task(prompt: Vec<i32>) -> Task {
    Task {
        prompt,
        max_draft_tokens: 8,
        min_tokens: 60,
        ..task(60, 8)
    }
}

fn prompt(number: i32) -> Vec<i32> {
    let token = |index: i32| 1 + (next(number as u64, &[index], true)) % 38;
    (0..6).map(token).collect()
}

/// Prompt and answer of the target.
fn whole_text(task: &Task) -> Vec<i32> {
    let answer = Letters.encode(&target_only_text(task, SEED)).unwrap();
    [task.prompt.clone(), answer].concat()
}

fn run(memory: &Arc<Memory>, scope: &str, task: Task) -> Outcome {
    let mut run = Run::new(SEED, None);
    run.min_match = Some(2);
    run.memory = Some((Arc::clone(memory), scope.to_owned()));
    run.finish(task)
}

/// The tokens and the proposal of each call.
fn inputs(calls: &[Call]) -> Vec<[Vec<i32>; 2]> {
    let names = ["input_ids", "draft_input_ids"];
    let inputs = |call: &Call| names.map(|name| integers(call, name));
    calls.iter().map(inputs).collect()
}

/// Steps of the target's engine: each gives one token, and those of a proposal that it accepts.
fn steps(outcome: &Outcome) -> usize {
    outcome.counts.generated - outcome.counts.accepted
}

#[test]
fn text_of_the_same_scope_shortens_an_answer_and_that_of_another_scope_changes_no_call() {
    for number in 0..100 {
        let task = memory_task(prompt(number));
        let expected = target_only_text(&task, SEED);
        let memory = Arc::new(Memory::new(MEGABYTE));
        let unseen = run(&memory, "a", task.clone());
        memory.learn("b", &whole_text(&task));
        let seen_by_other = run(&memory, "a", task.clone());
        assert_eq!(
            inputs(&seen_by_other.target.calls),
            inputs(&unseen.target.calls)
        );
        assert_eq!(seen_by_other.remembered, 0);
        memory.learn("a", &whole_text(&task));
        let seen = run(&memory, "a", task);
        assert!(steps(&seen) * 3 < steps(&unseen), "{} steps", steps(&seen));
        assert!(seen.remembered > 30, "{} accepted", seen.remembered);
        for outcome in [unseen, seen_by_other, seen] {
            assert_eq!(outcome.text(), expected);
        }
    }
}

#[test]
fn greedy_answers_stay_those_of_the_target_whatever_the_memory_holds() {
    let numbers = &mut Numbers::new(1);
    let memory = Arc::new(Memory::new(MEGABYTE));
    for number in 0..200 {
        let task = memory_task(prompt(number % 20));
        let outcome = run(&memory, "a", task.clone());
        assert_eq!(outcome.text(), target_only_text(&task, SEED));
        // Some texts are wrong from a random token on.
        let mut text = whole_text(&task);
        let wrong = numbers.between(0, 2 * text.len());
        text.iter_mut()
            .skip(wrong)
            .for_each(|token| *token = 1 + *token % 38);
        memory.learn("a", &text);
    }
}

/// The difference of the mean ranks of two samples in standard errors (Mann and Whitney 1947).
fn rank_difference(first: &[f64], second: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = first.iter().map(|time| (*time, true)).collect();
    all.extend(second.iter().map(|time| (*time, false)));
    all.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut ranks = 0.0;
    for group in all.chunk_by(|left, right| left.0 == right.0) {
        let before = all.partition_point(|(time, _)| *time < group[0].0);
        let rank = before as f64 + (group.len() + 1) as f64 / 2.0;
        ranks += rank * group.iter().filter(|(_, of_first)| *of_first).count() as f64;
    }
    let (n, m) = (first.len() as f64, second.len() as f64);
    let expected = n * (n + m + 1.0) / 2.0;
    (ranks - expected) / (n * m * (n + m + 1.0) / 12.0).sqrt()
}

/// Microseconds of searches for texts that other scopes know, for unknown texts and for own texts.
/// The three kinds alternate, so that a busy machine slows all of them alike.
fn search_times() -> [Vec<f64>; 3] {
    let memory = Memory::new(16 * MEGABYTE);
    let text = |kind: i32, number: usize| -> Vec<i32> {
        (0..32)
            .map(|at| (number as i32 * 3 + kind) * 32 + at)
            .collect()
    };
    for number in 0..SAMPLES {
        memory.learn("other", &text(0, number));
        memory.learn("own", &text(2, number));
    }
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for number in 0..SAMPLES {
        for turn in 0..3 {
            let kind = (turn + number) % 3;
            let text = text(kind as i32, number);
            let started = Instant::now();
            let candidate = memory.candidate("own", &text[..20], 2, 8);
            times[kind].push(started.elapsed().as_secs_f64() * 1e6);
            assert_eq!(candidate.is_some(), kind == 2);
        }
    }
    times
}

#[test]
fn search_takes_as_long_for_the_text_of_another_scope_as_for_an_unknown_one() {
    // Machines differ in noise. A real difference shows every time.
    let differences = (0..3).map(|_| {
        let [other, unknown, own] = search_times();
        let difference = rank_difference(&own, &unknown);
        assert!(
            difference > SIGNIFICANT,
            "own texts differ by {difference} only"
        );
        rank_difference(&other, &unknown).abs()
    });
    let least = differences.fold(f64::INFINITY, f64::min);
    assert!(
        least < SIGNIFICANT,
        "times differ by {least} standard errors"
    );
}
