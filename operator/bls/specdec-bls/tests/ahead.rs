//! The draft goes on while the target verifies: earlier rounds, the same tokens.

use common::model::integer;
use common::numbers::Numbers;
use common::restless::Restless;
use common::{Beside, Run, plain, task, words};
use triton_specdec::task::Task;

mod common;

fn endless(max_tokens: usize) -> Task {
    Task {
        min_tokens: max_tokens,
        ..task(max_tokens, 3)
    }
}

fn run(beside: Beside) -> Run {
    let mut run = Run::new(3, 3);
    run.beside = beside;
    run
}

#[test]
fn no_token_changes() {
    for seed in 0..3000 {
        let mut numbers = Numbers::new(seed);
        let task = Task {
            min_tokens: numbers.between(0, 12),
            stop_words: words(&mut numbers, 1),
            stream: numbers.between(0, 1) == 0,
            ..task(numbers.between(1, 30), numbers.between(1, 6))
        };
        let other = numbers.between(0, 2) as u64;
        let mut run = Run::new(seed.into(), u64::from(seed) + other);
        run.beside = [Beside::Early, Beside::Late, Beside::Anytime(seed)][numbers.between(0, 2)];
        let restless = numbers.between(0, 1) == 0;
        run.lengths = restless.then(|| Restless::new(seed).0 as _);
        // Now and then the draft breaks, in a call of either kind.
        let breaks = numbers.between(0, 3) == 0;
        if breaks {
            let calls = numbers.between(0, 6);
            run.draft.as_mut().unwrap().break_after(calls);
        }
        let stale = run.beside == Beside::Anytime(seed);
        let made = run.make(task.clone());
        assert_eq!(made.text(), plain(&task, seed.into()), "seed {seed}");
        let counts = &made.counts;
        assert!(counts.early <= counts.rounds && counts.accepted <= counts.drafted);
        assert!(counts.reasons.len() <= usize::from(breaks));
        if other == 0 && !restless && !breaks && !stale {
            // A draft that is the target foresees every round behind the first.
            let last = counts.generated + 1 >= task.max_tokens;
            assert!(counts.early + 1 == counts.rounds || last, "seed {seed}");
        }
    }
}

#[test]
fn a_draft_that_is_right_is_asked_once_in_the_way_of_the_answer() {
    for beside in [Beside::Early, Beside::Late, Beside::Anytime(1)] {
        let made = run(beside).make(endless(40));
        assert_eq!((made.counts.rounds, made.counts.early), (10, 9));
        // One call before the first round, then one behind each but the last.
        assert_eq!(made.draft.calls.len(), 10);
        assert_eq!((made.counts.accepted, made.counts.drafted), (30, 30));
    }
}

#[test]
fn a_wrong_guess_costs_nothing_but_that() {
    for beside in [Beside::Early, Beside::Late] {
        let mut run = Run::new(3, 8);
        run.beside = beside;
        let made = run.make(endless(40));
        assert_eq!(made.text(), plain(&endless(40), 3));
        assert_eq!(made.counts.early, 0);
        // One that is not answered yet leaves no room for the next.
        let again = made.draft.calls.len() > made.counts.rounds;
        assert_eq!(again, beside == Beside::Early);
    }
}

#[test]
fn draft_and_target_work_at_the_same_time() {
    // The target's call is answered only when the draft's beside it has been.
    let made = run(Beside::Early).make(endless(40));
    let begins = |call| integer(call, "input_lengths").unwrap() - 3;
    let beside: Vec<i64> = made.draft.calls[1..].iter().map(begins).collect();
    let rounds: Vec<i64> = made.target.calls.iter().map(begins).collect();
    let behind: Vec<i64> = rounds[..9].iter().map(|begin| begin + 3).collect();
    assert_eq!(beside, behind);
}

#[test]
fn a_draft_that_fails_ahead_says_so_once() {
    for beside in [Beside::Early, Beside::Late] {
        let mut run = run(beside);
        run.draft.as_mut().unwrap().break_after(1);
        let made = run.make(task(40, 3));
        assert_eq!(made.text(), plain(&task(40, 3), 3));
        // The call in the way of the answer fails as well.
        assert_eq!(made.counts.reasons, ["it broke"]);
        assert_eq!(made.counts.early, 0);
    }
}

#[test]
fn an_answer_that_may_not_draft_ahead_drafts_in_its_rounds() {
    let made = run(Beside::Refused).make(endless(40));
    assert_eq!((made.counts.rounds, made.counts.early), (10, 0));
    assert_eq!(made.draft.calls.len(), 10);
    assert_eq!(made.text(), plain(&endless(40), 3));
}

#[test]
fn what_is_drawn_never_depends_on_what_was_ready() {
    for change in [
        Task {
            seed: Some(7),
            ..endless(40)
        },
        Task {
            use_draft_logits: true,
            ..endless(40)
        },
    ] {
        let made = run(Beside::Early).make(change);
        assert_eq!(made.counts.early, 0);
        assert_eq!(made.draft.calls.len(), made.counts.rounds);
        // One token more than a round's proposal would be the guess of a call ahead.
        let asked = |call| integer(call, "request_output_len").unwrap();
        assert!(made.draft.calls.iter().map(asked).all(|length| length <= 3));
    }
}

#[test]
fn a_draft_that_died_ahead_is_waited_for_once() {
    let begun = std::time::Instant::now();
    let made = run(Beside::Never).make(endless(40));
    assert!(begun.elapsed().as_secs_f64() >= 1.0);
    assert_eq!(made.text(), plain(&endless(40), 3));
    assert_eq!((made.counts.early, made.counts.rounds), (0, 10));
    // Its call beside the target's counts as under way, so there is no second one; it comes back
    // when the answer is over.
    assert_eq!(made.draft.calls.len(), 10 + 1);
}
