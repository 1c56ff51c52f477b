//! Rows of many answers come together, and none of them waits for nothing.

use std::time::{Duration, Instant};

use triton_specdec::engine::Role::{self, Draft, Target};
use triton_specdec::gather::{Batch, Companion, Gather};

/// A row of a kind, which goes with others of it, and a number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row(char, u32);

impl Companion for Row {
    fn alike(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn drafts(&self) -> usize {
        1
    }

    fn shortens(&self) -> bool {
        true
    }

    fn shorten(&mut self, _: usize) {
        panic!("a single draft token cannot be fewer");
    }
}

/// Milliseconds of a draft and of a verification.
const DRAFT: u64 = 10;
const VERIFY: u64 = 100;

struct Clock {
    gather: Gather<Row>,
    now: Instant,
}

impl Clock {
    fn new(most: usize) -> Self {
        Self {
            gather: Gather::new(most),
            now: Instant::now(),
        }
    }

    /// One that has seen a round of a single answer.
    fn trained(most: usize) -> Self {
        let mut clock = Self::new(most);
        for (role, milliseconds) in [(Draft, DRAFT), (Target, VERIFY)] {
            let number = clock.one(role, Row('a', 0));
            clock.pass(milliseconds);
            clock.answered(number);
        }
        clock
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn submit(&mut self, role: Role, row: Row) {
        self.gather.submit(role, row);
    }

    fn ready(&mut self) -> Vec<Batch<Row>> {
        self.gather.ready(self.now)
    }

    /// The number of the only call that goes out, of these rows.
    fn goes(&mut self, role: Role, rows: &[Row]) -> u64 {
        let batches = self.ready();
        assert_eq!(batches.len(), 1, "{batches:?}");
        assert_eq!((batches[0].role, batches[0].rows.as_slice()), (role, rows));
        batches[0].number
    }

    fn waits(&mut self) {
        let batches = self.ready();
        assert!(batches.is_empty(), "{batches:?}");
    }

    /// A row that comes and goes at once.
    fn one(&mut self, role: Role, row: Row) -> u64 {
        self.submit(role, row);
        self.goes(role, &[row])
    }

    fn answered(&mut self, number: u64) {
        self.gather.answered(number, self.now);
    }

    /// Milliseconds until rows that wait go at the latest.
    fn due(&self) -> Option<f64> {
        let due = self.gather.due(self.now)?;
        Some((due - self.now).as_secs_f64() * 1000.0)
    }
}

#[test]
fn one_client_never_waits() {
    let mut clock = Clock::new(8);
    for _ in 0..5 {
        for (role, milliseconds) in [(Draft, DRAFT), (Target, VERIFY)] {
            let number = clock.one(role, Row('a', 1));
            assert_eq!(clock.due(), None);
            clock.pass(milliseconds);
            clock.answered(number);
        }
    }
}

#[test]
fn one_client_goes_on_before_its_call_is_counted_as_over() {
    // As answers do: the next call is wished for first.
    let mut clock = Clock::trained(8);
    let mut number = clock.one(Draft, Row('a', 1));
    for round in 0..6 {
        let role = if round % 2 == 0 { Target } else { Draft };
        clock.pass(DRAFT);
        clock.submit(role, Row('a', 1));
        clock.answered(number);
        number = clock.goes(role, &[Row('a', 1)]);
    }
}

#[test]
fn a_verification_waits_for_those_that_are_drafting() {
    let mut clock = Clock::trained(8);
    let drafting = clock.one(Draft, Row('a', 1));
    clock.submit(Target, Row('a', 2));
    clock.waits();
    let due = clock.due().unwrap();
    // About as long as a draft takes, at most twice that and a little of a verification.
    assert!(due >= DRAFT as f64 - 0.01, "{due}");
    assert!(due <= (2 * DRAFT + VERIFY / 10) as f64, "{due}");
    clock.pass(DRAFT / 2);
    clock.waits();
    clock.submit(Target, Row('a', 1));
    clock.answered(drafting);
    clock.goes(Target, &[Row('a', 2), Row('a', 1)]);
}

#[test]
fn nobody_waits_longer_than_a_draft_takes() {
    let mut clock = Clock::trained(8);
    clock.one(Draft, Row('a', 1));
    clock.submit(Target, Row('a', 2));
    clock.waits();
    clock.pass(2 * DRAFT + VERIFY / 10 + 1);
    clock.goes(Target, &[Row('a', 2)]);
    assert_eq!(clock.due(), None);
}

#[test]
fn a_verification_waits_for_those_of_another_beat() {
    let mut clock = Clock::trained(8);
    let first = clock.one(Target, Row('a', 1));
    clock.pass(VERIFY / 2);
    clock.submit(Target, Row('a', 2));
    clock.waits();
    let due = clock.due().unwrap();
    assert!(due <= (VERIFY + 2 * DRAFT) as f64, "{due}");
    clock.pass(VERIFY / 2);
    clock.submit(Draft, Row('a', 1));
    clock.answered(first);
    let drafting = clock.goes(Draft, &[Row('a', 1)]);
    clock.pass(DRAFT);
    clock.submit(Target, Row('a', 1));
    clock.answered(drafting);
    clock.goes(Target, &[Row('a', 2), Row('a', 1)]);
}

#[test]
fn who_was_late_is_not_waited_for_again() {
    let mut clock = Clock::trained(8);
    let late = clock.one(Draft, Row('a', 1));
    clock.submit(Target, Row('a', 2));
    clock.pass(2 * DRAFT + VERIFY);
    for number in [2, 3] {
        if number == 3 {
            clock.submit(Target, Row('a', 3));
        }
        let call = clock.goes(Target, &[Row('a', number)]);
        clock.pass(VERIFY);
        clock.answered(call);
    }
    // A draft in its usual time is waited for again.
    clock.submit(Target, Row('a', 1));
    clock.answered(late);
    let call = clock.goes(Target, &[Row('a', 1)]);
    clock.pass(VERIFY);
    clock.answered(call);
    for _ in 0..20 {
        let call = clock.one(Draft, Row('a', 1));
        clock.pass(DRAFT);
        clock.answered(call);
    }
    clock.one(Draft, Row('a', 4));
    clock.submit(Target, Row('a', 5));
    clock.waits();
}

#[test]
fn rows_that_come_back_together_are_drafted_for_together() {
    let mut clock = Clock::trained(8);
    let rows = [Row('a', 1), Row('a', 2), Row('a', 3)];
    rows.iter().for_each(|row| clock.submit(Target, *row));
    let number = clock.goes(Target, &rows);
    clock.pass(VERIFY);
    for row in &rows[..2] {
        clock.submit(Draft, *row);
        clock.answered(number);
        clock.waits();
    }
    // The last one lies apart by at most a part of a verification.
    let due = clock.due().unwrap();
    assert!(due <= (VERIFY / 5) as f64, "{due}");
    clock.submit(Draft, rows[2]);
    clock.answered(number);
    clock.goes(Draft, &rows);
}

#[test]
fn who_has_no_further_call_is_not_waited_for() {
    let mut clock = Clock::trained(8);
    let rows = [Row('a', 1), Row('a', 2)];
    rows.iter().for_each(|row| clock.submit(Target, *row));
    let number = clock.goes(Target, &rows);
    clock.pass(VERIFY);
    clock.submit(Draft, rows[0]);
    clock.answered(number);
    clock.waits();
    // The other one's answer was its last.
    clock.answered(number);
    clock.goes(Draft, &rows[..1]);
}

#[test]
fn a_draft_does_not_wait_for_a_verification_that_has_not_answered() {
    let mut clock = Clock::trained(8);
    clock.one(Target, Row('a', 1));
    clock.pass(VERIFY / 2);
    clock.one(Draft, Row('a', 2));
}

#[test]
fn with_a_row_a_call_every_row_goes_at_once() {
    let mut clock = Clock::trained(1);
    clock.one(Draft, Row('a', 1));
    clock.one(Target, Row('a', 2));
    clock.submit(Target, Row('a', 3));
    clock.submit(Target, Row('a', 4));
    assert_eq!(clock.ready().len(), 2);
    assert_eq!(clock.due(), None);
}

#[test]
fn calls_have_no_more_rows_than_the_engines_take() {
    let mut clock = Clock::new(3);
    (0..8).for_each(|number| clock.submit(Target, Row('a', number)));
    let sizes: Vec<usize> = clock.ready().iter().map(|one| one.rows.len()).collect();
    assert_eq!(sizes, [3, 3, 2]);
}

#[test]
fn a_full_call_waits_for_nobody() {
    let mut clock = Clock::trained(2);
    clock.submit(Draft, Row('a', 1));
    clock.goes(Draft, &[Row('a', 1)]);
    clock.submit(Target, Row('a', 2));
    clock.waits();
    clock.submit(Target, Row('a', 3));
    clock.goes(Target, &[Row('a', 2), Row('a', 3)]);
}

#[test]
fn engines_that_take_one_row_get_one_from_then_on() {
    let mut clock = Clock::trained(3);
    clock.submit(Draft, Row('a', 1));
    clock.goes(Draft, &[Row('a', 1)]);
    clock.submit(Target, Row('a', 2));
    clock.waits();
    clock.gather.go_alone();
    clock.submit(Target, Row('a', 3));
    let sizes: Vec<usize> = clock.ready().iter().map(|one| one.rows.len()).collect();
    assert_eq!(sizes, [1, 1]);
}

#[test]
fn only_rows_that_are_alike_share_a_call() {
    let mut clock = Clock::new(8);
    for (number, kind) in "abacab".chars().enumerate() {
        clock.submit(Draft, Row(kind, number as u32));
    }
    let batches = clock.ready();
    let found: Vec<&[Row]> = batches.iter().map(|one| one.rows.as_slice()).collect();
    let wanted: [&[Row]; 3] = [
        &[Row('a', 0), Row('a', 2), Row('a', 4)],
        &[Row('b', 1), Row('b', 5)],
        &[Row('c', 3)],
    ];
    assert_eq!(found, wanted);
    let mut numbers: Vec<u64> = batches.iter().map(|one| one.number).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), 3);
}

#[test]
fn nothing_is_ever_lost() {
    // Sixteen answers at random speeds: every row goes out once, soon, whatever comes when.
    let mut clock = Clock::new(4);
    let mut state = 1_u64;
    let mut below = |end: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % end
    };
    // Until when a call works, its number, its role and its row.
    let mut under: Vec<(Instant, u64, Role, Row)> = Vec::new();
    let mut waiting = 16;
    (0..16).for_each(|number| clock.submit(Draft, Row('a', number)));
    for _ in 0..20_000 {
        for batch in clock.ready() {
            waiting -= batch.rows.len();
            for row in batch.rows {
                let most = if batch.role == Draft { DRAFT } else { VERIFY };
                let end = clock.now + Duration::from_millis(1 + below(most));
                under.push((end, batch.number, batch.role, row));
            }
        }
        assert_eq!(under.len() + waiting, 16);
        assert_eq!(clock.due().is_some(), waiting > 0);
        assert!(clock.due().unwrap_or(0.0) <= (2 * VERIFY) as f64);
        clock.pass(1);
        let now = clock.now;
        let done: Vec<_> = under.extract_if(.., |one| one.0 <= now).collect();
        for (_, number, role, row) in done {
            let next = if role == Draft { Target } else { Draft };
            clock.submit(next, row);
            waiting += 1;
            clock.answered(number);
        }
    }
}
