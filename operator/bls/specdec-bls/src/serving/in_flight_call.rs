//! Engine calls in flight, and their rows that wait for a result.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use triton::Tensor;

use super::in_flight::InFlightSequence;
use crate::batching::Batchable;
use crate::batching::merge::{can_merge, merged, shorten, single};
use crate::engine::{Call, Role};
use crate::lock::locked;
use crate::sequence::Event;

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

/// What a call is made of: inputs, names of outputs, and the sequence that can cancel it.
type Contents = (
    Vec<Tensor>,
    Vec<Cow<'static, str>>,
    Option<Arc<InFlightSequence>>,
);

/// The rows of one engine call in flight.
pub struct InFlightCall {
    pub role: Role,
    /// The batcher's number of the batch that the call belongs to; None for a call that was sent
    /// without the batcher.
    pub batch: Option<u64>,
    pub started: Instant,
    /// The call has several rows.
    pub shared: bool,
    /// The call is streamed. Its only row gets all responses.
    pub streamed: bool,
    rows: Mutex<Vec<Option<Row>>>,
    refused: AtomicBool,
}

impl InFlightCall {
    pub fn new(role: Role, batch: Option<u64>, rows: Vec<Row>) -> Self {
        Self {
            role,
            batch,
            started: Instant::now(),
            shared: rows.len() > 1,
            streamed: rows.iter().any(|row| row.call.stream.is_some()),
            rows: Mutex::new(rows.into_iter().map(Some).collect()),
            refused: AtomicBool::new(false),
        }
    }

    /// Inputs and outputs of the call, and the sequence that can cancel it.
    ///
    /// A call of a round is short. Any other call is cancelled when the client disconnects.
    pub fn contents(&self) -> Contents {
        let mut rows = locked(&self.rows);
        if let [Some(row)] = rows.as_mut_slice() {
            let outputs = std::mem::take(&mut row.call.outputs);
            let cancelled_by = (!row.call.batchable).then(|| Arc::clone(&row.sequence));
            return (single(&mut row.call), outputs, cancelled_by);
        }
        let calls: Vec<&Call> = rows.iter().flatten().map(|row| &row.call).collect();
        let (inputs, outputs) = merged(&calls);
        (inputs, outputs, None)
    }

    /// Pass the tokens of a streamed response to the sequence. It is not the last response.
    pub fn deliver_streamed(&self, outputs: Vec<Tensor>) {
        let stream = |row: &Row| Some((row.call.stream?, Arc::clone(&row.sequence)));
        let stream = locked(&self.rows).iter().flatten().find_map(stream);
        if let Some((number, sequence)) = stream {
            let event = Event::Streamed {
                number,
                result: Ok(outputs),
                is_final: false,
            };
            sequence.deliver(event, None);
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
