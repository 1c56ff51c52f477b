//! A sequence that starts its round later than the others does not delay all of them.

use triton_specdec::batching::Batchable;
use triton_specdec::engine::Role::{self, Draft, Target};

use crate::clock::{Clock, VERIFY};

/// Milliseconds of a draft token.
const TOKEN: u64 = 10;
const LENGTH: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    number: usize,
    draft_tokens: usize,
    fixed: bool,
}

impl Batchable for Row {
    fn fits_with(&self, _: &Self) -> bool {
        true
    }

    fn draft_tokens(&self) -> usize {
        self.draft_tokens
    }

    fn may_shorten(&self) -> bool {
        !self.fixed
    }

    fn shorten(&mut self, draft_tokens: usize) {
        self.draft_tokens = draft_tokens;
    }
}

impl Clock<Row> {
    /// A batcher that knows the costs and has just sent a draft batch of this many rows; the number
    /// of that batch.
    fn drafting(rows: usize) -> (Self, u64) {
        let mut clock = Self::new(64);
        for (role, milliseconds) in [(Draft, LENGTH as u64 * TOKEN), (Target, VERIFY)] {
            let (number, _) = clock.send_single(role, row(0));
            clock.advance(milliseconds);
            clock.row_completed(number);
        }
        (0..rows).for_each(|number| clock.submit(Draft, row(number)));
        let batch = clock.take_ready().remove(0);
        assert_eq!(batch.calls.concat().len(), rows);
        (clock, batch.number)
    }

    /// Submit a row that is sent at once; the number of its batch and its draft tokens.
    fn send_single(&mut self, role: Role, row: Row) -> (u64, usize) {
        self.submit(role, row);
        let mut batches = self.take_ready();
        assert_eq!(batches.len(), 1);
        let batch = batches.remove(0);
        (batch.number, batch.calls[0][0].draft_tokens)
    }

    /// Complete a draft batch, whose rows submit their verifications; how many rows are sent.
    fn complete_drafts(&mut self, number: u64, rows: usize) -> usize {
        for index in 0..rows {
            self.submit(Target, row(index));
            self.row_completed(number);
        }
        self.rows_sent()
    }

    fn rows_sent(&mut self) -> usize {
        let batches = self.take_ready();
        batches.iter().map(|item| item.calls.concat().len()).sum()
    }
}

fn row(number: usize) -> Row {
    Row {
        number,
        draft_tokens: LENGTH,
        fixed: false,
    }
}

/// A row of a sampled answer, which may not be shortened.
fn fixed(number: usize) -> Row {
    Row {
        fixed: true,
        ..row(number)
    }
}

#[test]
fn late_draft_is_shortened_to_end_with_the_others() {
    for (late, expected) in [(2, 4), (10, 3), (22, 2), (31, 1), (39, 1)] {
        let (mut clock, _) = Clock::drafting(15);
        clock.advance(late);
        assert_eq!(
            clock.send_single(Draft, row(15)).1,
            expected,
            "{late} ms late"
        );
    }
}

#[test]
fn few_others_do_not_shorten_a_late_draft() {
    // Without shortening, two sequences wait 20 ms each, which is 40 ms in all. Leaving out two of
    // five tokens costs more: 56 ms of a round of 140 ms.
    let (mut clock, _) = Clock::drafting(2);
    clock.advance(20);
    assert_eq!(clock.send_single(Draft, row(2)).1, LENGTH);
}

#[test]
fn many_late_drafts_are_not_shortened() {
    let (mut clock, _) = Clock::drafting(5);
    clock.advance(20);
    (5..20).for_each(|number| clock.submit(Draft, row(number)));
    let batch = clock.take_ready().remove(0);
    assert!(
        batch
            .calls
            .concat()
            .iter()
            .all(|item| item.draft_tokens == LENGTH)
    );
}

#[test]
fn draft_of_fixed_length_is_not_shortened() {
    let (mut clock, _) = Clock::drafting(15);
    clock.advance(20);
    assert_eq!(clock.send_single(Draft, fixed(15)).1, LENGTH);
}

#[test]
fn draft_during_a_verification_is_not_shortened() {
    let (mut clock, number) = Clock::drafting(15);
    clock.advance(LENGTH as u64 * TOKEN);
    assert_eq!(clock.complete_drafts(number, 15), 15);
    clock.advance(VERIFY / 2);
    assert_eq!(clock.send_single(Draft, row(15)).1, LENGTH);
}

#[test]
fn verification_waits_for_a_slightly_late_draft() {
    let (mut clock, number) = Clock::drafting(15);
    clock.advance(5);
    let (late, _) = clock.send_single(Draft, row(15));
    clock.advance(LENGTH as u64 * TOKEN - 5);
    // Sixteen sequences wait 5 ms each, 80 ms in all. If they did not, one sequence would lose a
    // round of 140 ms.
    assert_eq!(clock.complete_drafts(number, 15), 0);
    assert!(clock.due().unwrap() < 30.0);
    clock.advance(5);
    assert_eq!(clock.complete_drafts(late, 1), 16);
}

#[test]
fn verification_leaves_without_a_draft_that_is_too_late() {
    let (mut clock, number) = Clock::drafting(15);
    clock.advance(20);
    let (late, _) = clock.send_single(Draft, fixed(15));
    clock.advance(LENGTH as u64 * TOKEN - 20);
    // Waiting would cost sixteen sequences 20 ms each, more than a round of the late one (140 ms).
    assert_eq!(clock.complete_drafts(number, 15), 15);
    clock.advance(20);
    // The late row waits for the others' next verification: sent alone, it would stay separate.
    assert_eq!(clock.complete_drafts(late, 1), 0);
}

#[test]
fn few_rows_wait_for_many() {
    let (mut clock, early) = Clock::drafting(3);
    clock.advance(20);
    (3..18).for_each(|number| clock.submit(Draft, row(number)));
    let many = clock.take_ready().remove(0).number;
    clock.advance(LENGTH as u64 * TOKEN - 20);
    assert_eq!(clock.complete_drafts(early, 3), 0);
    clock.advance(20);
    assert_eq!(clock.complete_drafts(many, 15), 18);
}
