//! Who comes late to a round does not hold up all the others.

use std::time::{Duration, Instant};

use triton_specdec::engine::Role::{self, Draft, Target};
use triton_specdec::gather::{Companion, Gather};

/// Milliseconds of a draft token and of a verification.
const TOKEN: u64 = 10;
const VERIFY: u64 = 100;
const LENGTH: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    number: usize,
    drafts: usize,
    fixed: bool,
}

impl Companion for Row {
    fn alike(&self, _: &Self) -> bool {
        true
    }

    fn drafts(&self) -> usize {
        self.drafts
    }

    fn shortens(&self) -> bool {
        !self.fixed
    }

    fn shorten(&mut self, drafts: usize) {
        self.drafts = drafts;
    }
}

struct Clock {
    gather: Gather<Row>,
    now: Instant,
}

impl Clock {
    /// So many answers are being drafted for since now, by engines that are known.
    fn drafting(party: usize) -> (Self, u64) {
        let mut clock = Self {
            gather: Gather::new(64),
            now: Instant::now(),
        };
        for (role, took) in [(Draft, LENGTH as u64 * TOKEN), (Target, VERIFY)] {
            let (number, _) = clock.one(role, row(0));
            clock.pass(took);
            clock.gather.answered(number, clock.now);
        }
        (0..party).for_each(|number| clock.gather.submit(Draft, row(number)));
        let batch = clock.gather.ready(clock.now).remove(0);
        assert_eq!(batch.rows.len(), party);
        (clock, batch.number)
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    /// Number of the call and draft tokens of a row that goes out at once.
    fn one(&mut self, role: Role, row: Row) -> (u64, usize) {
        self.gather.submit(role, row);
        let mut batches = self.gather.ready(self.now);
        assert_eq!(batches.len(), 1);
        let batch = batches.remove(0);
        (batch.number, batch.rows[0].drafts)
    }

    /// All rows of a draft are there and want to be verified; how many rows go.
    fn drafted(&mut self, number: u64, rows: usize) -> usize {
        for place in 0..rows {
            self.gather.submit(Target, row(place));
            self.gather.answered(number, self.now);
        }
        self.gone()
    }

    fn gone(&mut self) -> usize {
        let batches = self.gather.ready(self.now);
        batches.iter().map(|one| one.rows.len()).sum()
    }
}

fn row(number: usize) -> Row {
    Row {
        number,
        drafts: LENGTH,
        fixed: false,
    }
}

/// A row whose length only its own answer may decide.
fn fixed(number: usize) -> Row {
    Row {
        fixed: true,
        ..row(number)
    }
}

#[test]
fn a_late_one_drafts_what_is_ready_with_the_others() {
    for (late, wanted) in [(2, 4), (10, 3), (22, 2), (31, 1), (39, 1)] {
        let (mut clock, _) = Clock::drafting(15);
        clock.pass(late);
        assert_eq!(clock.one(Draft, row(15)).1, wanted, "{late} ms late");
    }
}

#[test]
fn with_few_others_it_drafts_as_usual() {
    // Two answers wait 20 ms together; two tokens are worth 56 ms of a round of 140.
    let (mut clock, _) = Clock::drafting(2);
    clock.pass(20);
    assert_eq!(clock.one(Draft, row(2)).1, LENGTH);
}

#[test]
fn many_late_ones_draft_as_usual() {
    let (mut clock, _) = Clock::drafting(5);
    clock.pass(20);
    (5..20).for_each(|number| clock.gather.submit(Draft, row(number)));
    let batch = clock.gather.ready(clock.now).remove(0);
    assert!(batch.rows.iter().all(|one| one.drafts == LENGTH));
}

#[test]
fn one_whose_length_is_fixed_keeps_it() {
    let (mut clock, _) = Clock::drafting(15);
    clock.pass(20);
    assert_eq!(clock.one(Draft, fixed(15)).1, LENGTH);
}

#[test]
fn while_the_others_are_verified_there_is_time() {
    let (mut clock, number) = Clock::drafting(15);
    clock.pass(LENGTH as u64 * TOKEN);
    assert_eq!(clock.drafted(number, 15), 15);
    clock.pass(VERIFY / 2);
    assert_eq!(clock.one(Draft, row(15)).1, LENGTH);
}

#[test]
fn a_little_is_waited_for() {
    let (mut clock, number) = Clock::drafting(15);
    clock.pass(5);
    let (late, _) = clock.one(Draft, row(15));
    clock.pass(LENGTH as u64 * TOKEN - 5);
    // Sixteen answers wait 5 ms rather than one a round.
    assert_eq!(clock.drafted(number, 15), 0);
    let due = clock.gather.due(clock.now).unwrap();
    assert!(due - clock.now < Duration::from_millis(30));
    clock.pass(5);
    assert_eq!(clock.drafted(late, 1), 16);
}

#[test]
fn what_costs_more_than_a_round_is_not_waited_for() {
    let (mut clock, number) = Clock::drafting(15);
    clock.pass(20);
    let (late, _) = clock.one(Draft, fixed(15));
    clock.pass(LENGTH as u64 * TOKEN - 20);
    // Sixteen times 20 ms is more than the 140 that the late one loses.
    assert_eq!(clock.drafted(number, 15), 15);
    clock.pass(20);
    // The late one waits for the others' next verification: alone it would be a party of its own.
    assert_eq!(clock.drafted(late, 1), 0);
}

#[test]
fn a_few_wait_for_many() {
    let (mut clock, early) = Clock::drafting(3);
    clock.pass(20);
    (3..18).for_each(|number| clock.gather.submit(Draft, row(number)));
    let many = clock.gather.ready(clock.now).remove(0).number;
    clock.pass(LENGTH as u64 * TOKEN - 20);
    assert_eq!(clock.drafted(early, 3), 0);
    clock.pass(20);
    assert_eq!(clock.drafted(many, 15), 18);
}
