//! Runs the state machine of a sequence in flight, and carries out its effects.
//!
//! Events arrive from any thread. One thread at a time takes the sequence out of its inbox and
//! runs it; others leave their event in the inbox and return. The inbox is not locked while the
//! effects are carried out, so Triton may call back at any point.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use triton::{InferenceCall, Level, log};

use super::in_flight_call::Row;
use super::model::Bls;
use super::reply::Reply;
use crate::engine::Call;
use crate::error::Error;
use crate::lock::locked;
use crate::request::task::Task;
use crate::sequence::{Effects, End, Event, Sequence};

/// The message for the client when the BLS itself fails.
const INTERNAL: &str = "tensorrt_llm_bls failed on this request: the server's log has the details";

/// A sequence in flight, the model that sends its calls, and the reply that sends its parts.
pub struct InFlightSequence {
    pub number: u64,
    bls: Arc<Bls>,
    task: Arc<Task>,
    /// Index of the prompt in its request.
    row: usize,
    reply: Arc<Reply>,
    inbox: Mutex<Inbox>,
    /// The call to cancel when the client disconnects, or when it is streamed and no longer needed.
    cancellable: Mutex<Option<Arc<InferenceCall>>>,
}

/// The sequence and its events that no thread has processed yet.
struct Inbox {
    /// None while a thread runs the sequence, and after its end.
    sequence: Option<Sequence>,
    events: VecDeque<Delivery>,
    ended: bool,
}

/// An event, and the batcher's number of the batch whose result it reports.
struct Delivery {
    event: Event,
    batch: Option<u64>,
}

impl InFlightSequence {
    /// The sequence of the prompt at index `row` of its request.
    pub fn new(
        number: u64,
        bls: Arc<Bls>,
        task: Arc<Task>,
        row: usize,
        reply: Arc<Reply>,
        sequence: Sequence,
    ) -> Self {
        Self {
            number,
            bls,
            task,
            row,
            reply,
            inbox: Mutex::new(Inbox {
                sequence: Some(sequence),
                events: VecDeque::new(),
                ended: false,
            }),
            cancellable: Mutex::new(None),
        }
    }

    /// Process an event on this thread, or leave it to the thread that runs the sequence now.
    pub fn deliver(self: &Arc<Self>, event: Event, batch: Option<u64>) {
        let mut inbox = locked(&self.inbox);
        if inbox.ended {
            drop(inbox);
            return self.complete_row(batch);
        }
        inbox.events.push_back(Delivery { event, batch });
        let Some(mut sequence) = inbox.sequence.take() else {
            return;
        };
        loop {
            let Some(delivery) = inbox.events.pop_front() else {
                inbox.sequence = Some(sequence);
                return;
            };
            drop(inbox);
            let ended = self.run(&mut sequence, delivery);
            inbox = locked(&self.inbox);
            if ended {
                inbox.ended = true;
                let unprocessed = std::mem::take(&mut inbox.events);
                drop(inbox);
                for delivery in unprocessed {
                    self.complete_row(delivery.batch);
                }
                return;
            }
        }
    }

    /// Process one event and carry out its effects. Returns whether the sequence has ended.
    fn run(self: &Arc<Self>, sequence: &mut Sequence, delivery: Delivery) -> bool {
        let Delivery { event, mut batch } = delivery;
        let step = || {
            let cancelled = !matches!(event, Event::Tick) && self.reply.is_cancelled();
            let effects = sequence.handle(event, cancelled);
            self.carry_out(effects, sequence, &mut batch)
        };
        let ended = catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| {
            log(Level::Error, "tensorrt_llm_bls: a sequence panicked");
            self.end(End::Failed(triton::Error::internal(INTERNAL).into()));
            true
        });
        self.complete_row(batch);
        ended
    }

    /// Carry out the effects. Returns whether the sequence has ended. `batch` becomes None once its
    /// row's result has been reported to the batcher.
    fn carry_out(
        self: &Arc<Self>,
        effects: Effects,
        sequence: &mut Sequence,
        batch: &mut Option<u64>,
    ) -> bool {
        if effects.cancels_stream {
            self.cancel_call();
        }
        if let Some(call) = effects.call {
            let row = self.row(call, None);
            if row.call.batchable {
                self.bls.submit(batch.take(), Some(row));
            } else {
                self.bls.send_alone(row);
            }
        }
        if let Some(pipelined) = effects.pipelined {
            let number = pipelined.number;
            if self.bls.take_pipelined_slot() {
                self.bls.send_alone(self.row(pipelined.call, Some(number)));
            } else {
                sequence.reject_pipelined(number);
            }
        }
        let metrics = &self.bls.metrics;
        if let Some(counts) = effects.counts {
            metrics.count(&counts);
        }
        if let Some(reason) = effects.draft_error {
            metrics.draft_failed(&reason);
        }
        if let Some(length) = effects.draft_length {
            metrics.draft_length(length);
        }
        // The calls above were sent first, so the engines compute while the text is rendered.
        for part in effects.parts.into_iter().chain(sequence.render()) {
            self.reply.send_part(self.row, &self.task, part);
        }
        let ended = effects.end.is_some();
        if let Some(end) = effects.end {
            let completed = end == End::Completed;
            self.end(end);
            // The text is learned after the client has its answer.
            if completed {
                self.bls.remember(&self.task, sequence.ids());
            }
        }
        ended
    }

    fn row(self: &Arc<Self>, call: Call, pipelined: Option<u64>) -> Row {
        Row {
            sequence: Arc::clone(self),
            call,
            pipelined,
        }
    }

    /// Report to the batcher that a row of this batch has its result, and that no call follows it.
    fn complete_row(&self, batch: Option<u64>) {
        if batch.is_some() {
            self.bls.submit(batch, None);
        }
    }

    fn end(&self, end: End) {
        // The slot is released before the client receives the end, so that the metrics are exact
        // when it has its answer.
        if !self.bls.release_slot(self.number) {
            return;
        }
        match end {
            End::Completed => self.reply.row_completed(),
            End::Cancelled => self.reply.row_failed(Error::Cancelled),
            End::Failed(error) => self.reply.row_failed(error),
        }
    }

    /// Cancel the call of a disconnected client, and let the sequence check its timeout.
    pub fn tick(self: &Arc<Self>) {
        if self.reply.is_cancelled() {
            self.cancel_call();
        }
        self.deliver(Event::Tick, None);
    }

    fn cancel_call(&self) {
        if let Some(call) = locked(&self.cancellable).clone() {
            call.cancel();
        }
    }

    /// Set the call to cancel; None once it has ended. A streamed call is replaced by the next one,
    /// not removed at its end: cancelling a call that has ended changes nothing.
    pub fn set_cancellable(&self, call: Option<Arc<InferenceCall>>) {
        *locked(&self.cancellable) = call;
    }
}
