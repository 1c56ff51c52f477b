//! A batcher in simulated time.

use std::time::{Duration, Instant};

use triton_specdec::batching::waits::Synchronization;
use triton_specdec::batching::{Batch, Batchable, Batcher};
use triton_specdec::engine::Role::{self, Draft, Target};

/// A kind and a number. Rows of the same kind fit into one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row(pub char, pub u32);

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
pub const DRAFT: u64 = 10;
pub const VERIFY: u64 = 100;

/// A batcher and its simulated time.
pub struct Clock<R: Batchable> {
    pub batcher: Batcher<R>,
    pub now: Instant,
}

impl<R: Batchable> Clock<R> {
    pub fn new(most: usize) -> Self {
        Self {
            batcher: Batcher::new(most, most, Synchronization::Always),
            now: Instant::now(),
        }
    }

    pub fn advance(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    pub fn submit(&mut self, role: Role, row: R) {
        self.batcher.submit(role, row);
    }

    pub fn take_ready(&mut self) -> Vec<Batch<R>> {
        self.batcher.take_ready(self.now)
    }

    pub fn row_completed(&mut self, number: u64) {
        self.batcher.row_completed(number, self.now);
    }

    /// Milliseconds until the latest time at which a waiting row is sent.
    pub fn due(&self) -> Option<f64> {
        let due = self.batcher.due(self.now)?;
        Some((due - self.now).as_secs_f64() * 1000.0)
    }
}

impl Clock<Row> {
    /// A batcher that has measured one round of a single sequence, so that it knows the costs.
    pub fn trained(most: usize) -> Self {
        let mut clock = Self::new(most);
        for (role, milliseconds) in [(Draft, DRAFT), (Target, VERIFY)] {
            let number = clock.send_one(role, Row('a', 0));
            clock.advance(milliseconds);
            clock.row_completed(number);
        }
        clock
    }

    /// Check that exactly one batch is sent, with these rows; its number.
    pub fn expect_sent(&mut self, role: Role, rows: &[Row]) -> u64 {
        let batches = self.take_ready();
        assert_eq!(batches.len(), 1, "{batches:?}");
        assert_eq!(
            (batches[0].role, batches[0].calls.as_slice()),
            (role, [rows.to_vec()].as_slice())
        );
        batches[0].number
    }

    pub fn expect_waiting(&mut self) {
        let batches = self.take_ready();
        assert!(batches.is_empty(), "{batches:?}");
    }

    /// Submit a row that is sent at once; the number of its batch.
    pub fn send_one(&mut self, role: Role, row: Row) -> u64 {
        self.submit(role, row);
        self.expect_sent(role, &[row])
    }
}
