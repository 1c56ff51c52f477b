//! Which rows a batch has, and which of them share a call.

use std::time::{Duration, Instant};

use triton_specdec::engine::Role::{self, Draft, Target};

use crate::clock::{Clock, DRAFT, Row, VERIFY};

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
