//! Engine calls in flight, and their rows that wait for a result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::in_flight::InFlightSequence;
use crate::batching::Batchable;
use crate::batching::merge::{can_merge, shorten};
use crate::engine::{Call, Role};
use crate::lock::locked;

/// One sequence's call, which is sent alone or as a row of a batch.
pub struct Row {
    pub sequence: Arc<InFlightSequence>,
    pub call: Call,
    /// The number of a pipelined draft call within its sequence; None for any other call.
    pub pipelined: Option<u64>,
}

impl Batchable for Row {
    fn fits_with(&self, other: &Self) -> bool {
        can_merge(&self.call, &other.call)
    }

    fn draft_tokens(&self) -> usize {
        self.call.draft_tokens
    }

    fn may_shorten(&self) -> bool {
        self.call.may_shorten
    }

    fn shorten(&mut self, draft_tokens: usize) {
        shorten(&mut self.call, draft_tokens);
    }
}

/// The rows of one engine call in flight.
pub struct InFlightBatch {
    pub role: Role,
    /// The batcher's number of the batch; None for a call that did not come from the batcher.
    pub number: Option<u64>,
    pub started: Instant,
    /// The call has several rows.
    pub shared: bool,
    rows: Mutex<Vec<Option<Row>>>,
    refused: AtomicBool,
}

impl InFlightBatch {
    pub fn new(role: Role, number: Option<u64>, rows: Vec<Row>) -> Self {
        Self {
            role,
            number,
            started: Instant::now(),
            shared: rows.len() > 1,
            rows: Mutex::new(rows.into_iter().map(Some).collect()),
            refused: AtomicBool::new(false),
        }
    }

    /// Take the row at this index; None if it was taken before.
    pub fn take(&self, index: usize) -> Option<Row> {
        locked(&self.rows).get_mut(index)?.take()
    }

    /// Take all rows that still wait for a result.
    pub fn take_pending(&self) -> Vec<Row> {
        let mut rows = locked(&self.rows);
        rows.iter_mut().filter_map(Option::take).collect()
    }

    /// Record that the engine refused the call without naming a row.
    pub fn set_refused(&self) {
        self.refused.store(true, Ordering::Release);
    }

    pub fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }
}
