//! Pipelined drafting: the draft works during the verification, and the answer stays the same.

use support::changing_policy::ChangingPolicy;
use support::engine::integer;
use support::numbers::Numbers;
use support::{Pipelined, Run, stop_words, target_only_text, task};
use triton_specdec::request::task::Task;

mod support;

/// A task whose answer has exactly this many tokens.
fn full_length(max_tokens: usize) -> Task {
    Task {
        min_tokens: max_tokens,
        ..task(max_tokens, 3)
    }
}

fn run(pipelined: Pipelined) -> Run {
    let mut run = Run::new(3, 3);
    run.pipelined = pipelined;
    run
}

#[test]
fn pipelined_drafting_changes_no_token() {
    for seed in 0..3000 {
        let mut numbers = Numbers::new(seed);
        let task = Task {
            min_tokens: numbers.between(0, 12),
            stop_words: stop_words(&mut numbers, 1),
            stream: numbers.between(0, 1) == 0,
            ..task(numbers.between(1, 30), numbers.between(1, 6))
        };
        let other = numbers.between(0, 2) as u64;
        let mut run = Run::new(seed.into(), u64::from(seed) + other);
        run.pipelined =
            [Pipelined::Early, Pipelined::Late, Pipelined::Anytime(seed)][numbers.between(0, 2)];
        let changing = numbers.between(0, 1) == 0;
        run.policy = changing.then(|| ChangingPolicy::new(seed).0 as _);
        // Sometimes the draft fails, in a call of either kind.
        let breaks = numbers.between(0, 3) == 0;
        if breaks {
            let calls = numbers.between(0, 6);
            run.draft.as_mut().unwrap().break_after(calls);
        }
        let delayed = run.pipelined == Pipelined::Anytime(seed);
        let outcome = run.finish(task.clone());
        assert_eq!(
            outcome.text(),
            target_only_text(&task, seed.into()),
            "seed {seed}"
        );
        let counts = &outcome.counts;
        assert!(counts.pipelined_rounds <= counts.rounds && counts.accepted <= counts.drafted);
        assert!(outcome.draft_errors.len() <= usize::from(breaks));
        if other == 0 && !changing && !breaks && !delayed {
            // If the draft equals the target, every round but the first uses a pipelined proposal.
            let last = counts.generated + 1 >= task.max_tokens;
            assert!(
                counts.pipelined_rounds + 1 == counts.rounds || last,
                "seed {seed}"
            );
        }
    }
}

#[test]
fn correct_draft_delays_only_the_first_round() {
    for pipelined in [Pipelined::Early, Pipelined::Late, Pipelined::Anytime(1)] {
        let outcome = run(pipelined).finish(full_length(40));
        assert_eq!(
            (outcome.counts.rounds, outcome.counts.pipelined_rounds),
            (10, 9)
        );
        // One call in the first round, and a pipelined one during each round but the last.
        assert_eq!(outcome.draft.calls.len(), 10);
        assert_eq!((outcome.counts.accepted, outcome.counts.drafted), (30, 30));
    }
}

#[test]
fn wrong_pipelined_proposal_is_discarded() {
    for pipelined in [Pipelined::Early, Pipelined::Late] {
        let mut run = Run::new(3, 8);
        run.pipelined = pipelined;
        let outcome = run.finish(full_length(40));
        assert_eq!(outcome.text(), target_only_text(&full_length(40), 3));
        assert_eq!(outcome.counts.pipelined_rounds, 0);
        // A call that is still in flight leaves no slot for the next.
        let more_than_one_a_round = outcome.draft.calls.len() > outcome.counts.rounds;
        assert_eq!(more_than_one_a_round, pipelined == Pipelined::Early);
    }
}

#[test]
fn draft_and_target_work_at_the_same_time() {
    // The target's call is answered only after the pipelined draft call.
    let outcome = run(Pipelined::Early).finish(full_length(40));
    let begins = |call| integer(call, "input_lengths").unwrap() - 3;
    let pipelined: Vec<i64> = outcome.draft.calls[1..].iter().map(begins).collect();
    let rounds: Vec<i64> = outcome.target.calls.iter().map(begins).collect();
    let after_proposals: Vec<i64> = rounds[..9].iter().map(|begin| begin + 3).collect();
    assert_eq!(pipelined, after_proposals);
}

#[test]
fn failure_of_a_pipelined_call_is_reported_once() {
    for pipelined in [Pipelined::Early, Pipelined::Late] {
        let mut run = run(pipelined);
        run.draft.as_mut().unwrap().break_after(1);
        let outcome = run.finish(task(40, 3));
        assert_eq!(outcome.text(), target_only_text(&task(40, 3), 3));
        // The round's own draft call fails as well.
        assert_eq!(outcome.draft_errors, ["it broke"]);
        assert_eq!(outcome.counts.pipelined_rounds, 0);
    }
}

#[test]
fn sequence_without_a_pipelined_slot_drafts_in_its_rounds() {
    let outcome = run(Pipelined::Rejected).finish(full_length(40));
    assert_eq!(
        (outcome.counts.rounds, outcome.counts.pipelined_rounds),
        (10, 0)
    );
    assert_eq!(outcome.draft.calls.len(), 10);
    assert_eq!(outcome.text(), target_only_text(&full_length(40), 3));
}

#[test]
fn rejected_call_loses_no_text_of_a_stream() {
    for stop_texts in [vec![], vec!["never".to_owned()]] {
        let task = Task {
            stream: true,
            stop_texts,
            ..full_length(40)
        };
        let outcome = run(Pipelined::EverySecond).finish(task.clone());
        assert_eq!(outcome.text(), target_only_text(&task, 3));
        assert!(outcome.counts.pipelined_rounds > 2);
        assert!(outcome.counts.pipelined_rounds + 2 < outcome.counts.rounds);
    }
}

#[test]
fn sampled_sequences_are_never_pipelined() {
    for change in [
        Task {
            seed: Some(7),
            ..full_length(40)
        },
        Task {
            use_draft_logits: true,
            ..full_length(40)
        },
    ] {
        let outcome = run(Pipelined::Early).finish(change);
        assert_eq!(outcome.counts.pipelined_rounds, 0);
        assert_eq!(outcome.draft.calls.len(), outcome.counts.rounds);
        // A pipelined call would request one more token, the guess at the target's own token.
        let requested = |call| integer(call, "request_output_len").unwrap();
        assert!(
            outcome
                .draft
                .calls
                .iter()
                .map(requested)
                .all(|length| length <= 3)
        );
    }
}

#[test]
fn dead_draft_delays_a_pipelined_sequence_once() {
    let started = std::time::Instant::now();
    let outcome = run(Pipelined::Never).finish(full_length(40));
    assert!(started.elapsed().as_secs_f64() >= 1.0);
    assert_eq!(outcome.text(), target_only_text(&full_length(40), 3));
    assert_eq!(
        (outcome.counts.pipelined_rounds, outcome.counts.rounds),
        (0, 10)
    );
    // The pipelined call stays in flight, so there is no second one. It completes after the end.
    assert_eq!(outcome.draft.calls.len(), 10 + 1);
}
