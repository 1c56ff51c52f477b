//! A row waits only for rows that will arrive in time.

use triton_specdec::engine::Role::{Draft, Target};

use crate::clock::{Clock, DRAFT, Row, VERIFY};

#[test]
fn single_sequence_never_waits() {
    let mut clock = Clock::new(8);
    for _ in 0..5 {
        for (role, milliseconds) in [(Draft, DRAFT), (Target, VERIFY)] {
            let number = clock.send_one(role, Row('a', 1));
            assert_eq!(clock.due(), None);
            clock.advance(milliseconds);
            clock.row_completed(number);
        }
    }
}

#[test]
fn single_sequence_submits_before_its_call_completes() {
    // The sequence submits its next row before the result is reported, as in `serving`.
    let mut clock = Clock::trained(8);
    let mut number = clock.send_one(Draft, Row('a', 1));
    for round in 0..6 {
        let role = if round % 2 == 0 { Target } else { Draft };
        clock.advance(DRAFT);
        clock.submit(role, Row('a', 1));
        clock.row_completed(number);
        number = clock.expect_sent(role, &[Row('a', 1)]);
    }
}

#[test]
fn verification_waits_for_drafts_in_flight() {
    let mut clock = Clock::trained(8);
    let drafting = clock.send_one(Draft, Row('a', 1));
    clock.submit(Target, Row('a', 2));
    clock.expect_waiting();
    let due = clock.due().unwrap();
    // It waits for at least a draft call, and at most for two draft calls and a tenth of a
    // verification.
    assert!(due >= DRAFT as f64 - 0.01, "{due}");
    assert!(due <= (2 * DRAFT + VERIFY / 10) as f64, "{due}");
    clock.advance(DRAFT / 2);
    clock.expect_waiting();
    clock.submit(Target, Row('a', 1));
    clock.row_completed(drafting);
    clock.expect_sent(Target, &[Row('a', 2), Row('a', 1)]);
}

#[test]
fn verification_waits_no_longer_than_a_draft_takes() {
    let mut clock = Clock::trained(8);
    clock.send_one(Draft, Row('a', 1));
    clock.submit(Target, Row('a', 2));
    clock.expect_waiting();
    clock.advance(2 * DRAFT + VERIFY / 10 + 1);
    clock.expect_sent(Target, &[Row('a', 2)]);
    assert_eq!(clock.due(), None);
}

#[test]
fn verification_waits_for_rows_in_flight_verification() {
    let mut clock = Clock::trained(8);
    let first = clock.send_one(Target, Row('a', 1));
    clock.advance(VERIFY / 2);
    clock.submit(Target, Row('a', 2));
    clock.expect_waiting();
    let due = clock.due().unwrap();
    assert!(due <= (VERIFY + 2 * DRAFT) as f64, "{due}");
    clock.advance(VERIFY / 2);
    clock.submit(Draft, Row('a', 1));
    clock.row_completed(first);
    let drafting = clock.expect_sent(Draft, &[Row('a', 1)]);
    clock.advance(DRAFT);
    clock.submit(Target, Row('a', 1));
    clock.row_completed(drafting);
    clock.expect_sent(Target, &[Row('a', 2), Row('a', 1)]);
}

#[test]
fn late_draft_is_not_waited_for_twice() {
    let mut clock = Clock::trained(8);
    let late = clock.send_one(Draft, Row('a', 1));
    clock.submit(Target, Row('a', 2));
    clock.advance(2 * DRAFT + VERIFY);
    for number in [2, 3] {
        if number == 3 {
            clock.submit(Target, Row('a', 3));
        }
        let call = clock.expect_sent(Target, &[Row('a', number)]);
        clock.advance(VERIFY);
        clock.row_completed(call);
    }
    // After draft calls of the usual duration, rows wait for them again.
    clock.submit(Target, Row('a', 1));
    clock.row_completed(late);
    let call = clock.expect_sent(Target, &[Row('a', 1)]);
    clock.advance(VERIFY);
    clock.row_completed(call);
    for _ in 0..20 {
        let call = clock.send_one(Draft, Row('a', 1));
        clock.advance(DRAFT);
        clock.row_completed(call);
    }
    clock.send_one(Draft, Row('a', 4));
    clock.submit(Target, Row('a', 5));
    clock.expect_waiting();
}

#[test]
fn rows_of_one_verification_are_drafted_together() {
    let mut clock = Clock::trained(8);
    let rows = [Row('a', 1), Row('a', 2), Row('a', 3)];
    rows.iter().for_each(|row| clock.submit(Target, *row));
    let number = clock.expect_sent(Target, &rows);
    clock.advance(VERIFY);
    for row in &rows[..2] {
        clock.submit(Draft, *row);
        clock.row_completed(number);
        clock.expect_waiting();
    }
    // Rows wait for the last result for at most a fifth of a verification.
    let due = clock.due().unwrap();
    assert!(due <= (VERIFY / 5) as f64, "{due}");
    clock.submit(Draft, rows[2]);
    clock.row_completed(number);
    clock.expect_sent(Draft, &rows);
}

#[test]
fn ended_sequence_is_not_waited_for() {
    let mut clock = Clock::trained(8);
    let rows = [Row('a', 1), Row('a', 2)];
    rows.iter().for_each(|row| clock.submit(Target, *row));
    let number = clock.expect_sent(Target, &rows);
    clock.advance(VERIFY);
    clock.submit(Draft, rows[0]);
    clock.row_completed(number);
    clock.expect_waiting();
    // The other sequence has ended.
    clock.row_completed(number);
    clock.expect_sent(Draft, &rows[..1]);
}

#[test]
fn draft_does_not_wait_for_a_verification_without_results() {
    let mut clock = Clock::trained(8);
    clock.send_one(Target, Row('a', 1));
    clock.advance(VERIFY / 2);
    clock.send_one(Draft, Row('a', 2));
}

#[test]
fn full_batch_does_not_wait() {
    let mut clock = Clock::trained(2);
    clock.submit(Draft, Row('a', 1));
    clock.expect_sent(Draft, &[Row('a', 1)]);
    clock.submit(Target, Row('a', 2));
    clock.expect_waiting();
    clock.submit(Target, Row('a', 3));
    clock.expect_sent(Target, &[Row('a', 2), Row('a', 3)]);
}

#[test]
fn single_rows_still_wait_for_each_other() {
    let mut clock = Clock::trained(2);
    clock.submit(Draft, Row('a', 1));
    clock.expect_sent(Draft, &[Row('a', 1)]);
    clock.submit(Target, Row('a', 2));
    clock.expect_waiting();
    clock.batcher.send_single_rows();
    clock.submit(Target, Row('a', 3));
    let batches = clock.take_ready();
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].calls, [[Row('a', 2)], [Row('a', 3)]]);
}
