//! Batches rows of many sequences. A row waits only for rows that will arrive in time.

use std::time::{Duration, Instant};

use triton_specdec::batching::waits::Synchronization;
use triton_specdec::batching::{Batch, Batchable, Batcher};
use triton_specdec::engine::Role::{self, Draft, Target};

/// A kind and a number. Rows of the same kind fit into one call.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row(char, u32);

impl Batchable for Row {
    fn fits_with(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn draft_tokens(&self) -> usize {
        1
    }

    fn may_shorten(&self) -> bool {
        true
    }

    fn shorten(&mut self, _: usize) {
        panic!("a single draft token cannot be fewer");
    }
}

/// Milliseconds of a draft call and of a verification.
const DRAFT: u64 = 10;
const VERIFY: u64 = 100;

/// A batcher and its simulated time.
struct Clock {
    batcher: Batcher<Row>,
    now: Instant,
}

impl Clock {
    fn new(most: usize) -> Self {
        Self {
            batcher: Batcher::new(most, most, Synchronization::Always),
            now: Instant::now(),
        }
    }

    /// A batcher that has measured one round of a single sequence, so that it knows the costs.
    fn trained(most: usize) -> Self {
        let mut clock = Self::new(most);
        for (role, milliseconds) in [(Draft, DRAFT), (Target, VERIFY)] {
            let number = clock.send_one(role, Row('a', 0));
            clock.advance(milliseconds);
            clock.row_completed(number);
        }
        clock
    }

    fn advance(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn submit(&mut self, role: Role, row: Row) {
        self.batcher.submit(role, row);
    }

    fn take_ready(&mut self) -> Vec<Batch<Row>> {
        self.batcher.take_ready(self.now)
    }

    /// Check that exactly one batch is sent, with these rows; its number.
    fn expect_sent(&mut self, role: Role, rows: &[Row]) -> u64 {
        let batches = self.take_ready();
        assert_eq!(batches.len(), 1, "{batches:?}");
        assert_eq!(
            (batches[0].role, batches[0].calls.as_slice()),
            (role, [rows.to_vec()].as_slice())
        );
        batches[0].number
    }

    fn expect_waiting(&mut self) {
        let batches = self.take_ready();
        assert!(batches.is_empty(), "{batches:?}");
    }

    /// Submit a row that is sent at once; the number of its batch.
    fn send_one(&mut self, role: Role, row: Row) -> u64 {
        self.submit(role, row);
        self.expect_sent(role, &[row])
    }

    fn row_completed(&mut self, number: u64) {
        self.batcher.row_completed(number, self.now);
    }

    /// Milliseconds until the latest time at which a waiting row is sent.
    fn due(&self) -> Option<f64> {
        let due = self.batcher.due(self.now)?;
        Some((due - self.now).as_secs_f64() * 1000.0)
    }
}

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
fn rows_are_sent_at_once_if_steps_take_one_row() {
    let mut clock = Clock::trained(1);
    clock.send_one(Draft, Row('a', 1));
    clock.send_one(Target, Row('a', 2));
    clock.submit(Target, Row('a', 3));
    clock.submit(Target, Row('a', 4));
    assert_eq!(clock.take_ready().len(), 2);
    assert_eq!(clock.due(), None);
}

#[test]
fn batches_have_at_most_the_maximum_of_rows() {
    let mut clock = Clock::new(3);
    (0..8).for_each(|number| clock.submit(Target, Row('a', number)));
    let sizes: Vec<usize> = clock
        .take_ready()
        .iter()
        .map(|item| item.calls.concat().len())
        .collect();
    assert_eq!(sizes, [3, 3, 2]);
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

#[test]
fn only_rows_that_fit_share_a_call() {
    for role in [Draft, Target] {
        let mut clock = Clock::new(8);
        for (number, kind) in "abacab".chars().enumerate() {
            clock.submit(role, Row(kind, number as u32));
        }
        let batches = clock.take_ready();
        assert_eq!(batches.len(), 1);
        let expected = [
            vec![Row('a', 0), Row('a', 2), Row('a', 4)],
            vec![Row('b', 1), Row('b', 5)],
            vec![Row('c', 3)],
        ];
        assert_eq!(batches[0].calls, expected);
    }
}

#[test]
fn single_rows_of_the_largest_kind_are_sent_first() {
    let mut clock = Clock::new(8);
    clock.batcher.send_single_rows();
    for (number, kind) in "abacab".chars().enumerate() {
        clock.submit(Target, Row(kind, number as u32));
    }
    let batches = clock.take_ready();
    assert_eq!(batches.len(), 1);
    let expected = [('a', 0), ('a', 2), ('a', 4), ('b', 1), ('b', 5), ('c', 3)];
    let expected = expected.map(|(kind, number)| vec![Row(kind, number)]);
    assert_eq!(batches[0].calls, expected);
}

#[test]
fn every_row_is_sent_once() {
    // Sixteen sequences at random speeds: every row is sent once, and soon.
    let mut clock = Clock::new(4);
    let mut state = 1_u64;
    let mut below = |end: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % end
    };
    // When a call ends, its number, its role and its row.
    let mut in_flight: Vec<(Instant, u64, Role, Row)> = Vec::new();
    let mut waiting = 16;
    (0..16).for_each(|number| clock.submit(Draft, Row('a', number)));
    for _ in 0..20_000 {
        for batch in clock.take_ready() {
            let rows = batch.calls.concat();
            waiting -= rows.len();
            for row in rows {
                let most = if batch.role == Draft { DRAFT } else { VERIFY };
                let end = clock.now + Duration::from_millis(1 + below(most));
                in_flight.push((end, batch.number, batch.role, row));
            }
        }
        assert_eq!(in_flight.len() + waiting, 16);
        assert_eq!(clock.due().is_some(), waiting > 0);
        assert!(clock.due().unwrap_or(0.0) <= (2 * VERIFY) as f64);
        clock.advance(1);
        let now = clock.now;
        let done: Vec<_> = in_flight.extract_if(.., |item| item.0 <= now).collect();
        for (_, number, role, row) in done {
            let next = if role == Draft { Target } else { Draft };
            clock.submit(next, row);
            waiting += 1;
            clock.row_completed(number);
        }
    }
}
