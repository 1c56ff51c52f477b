//! Sends batches to the engines, and passes their results to the sequences.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use triton::{Code, Level, PreparedCall, Response, Tensor, log};

use super::in_flight::InFlightSequence;
use super::in_flight_call::{InFlightCall, Row};
use super::model::Bls;
use crate::batching::merge::{ROW, pad_empty_proposal};
use crate::engine::{EngineResult, Role, find};
use crate::error::Error;
use crate::lock::locked;
use crate::sequence::Event;

/// If the engines refuse this many calls with several rows, without a success in between, the BLS
/// sends every row as a call of its own.
const MAX_REFUSALS: usize = 3;

/// A call that is ready to be sent.
struct Prepared<'a> {
    call: PreparedCall<'a>,
    /// Its number among the calls in flight.
    key: u64,
    sent: Arc<InFlightCall>,
    /// The sequence that can cancel the call.
    cancelled_by: Option<Arc<InFlightSequence>>,
}

impl Bls {
    /// Submit a sequence's next row, report that its row of batch `completed` has its result, and
    /// send the batches that are ready. `completed` and `row` may each be None.
    pub fn submit(self: &Arc<Self>, completed: Option<u64>, row: Option<Row>) {
        let now = Instant::now();
        let mut batcher = locked(&self.batcher);
        if let Some(row) = row {
            batcher.submit(row.call.role, row);
        }
        let verified = completed.and_then(|number| batcher.row_completed(number, now));
        let batches = batcher.take_ready(now);
        let due = batcher.due(now);
        drop(batcher);
        if let (Some(policy), Some(verified)) = (&self.policy, verified) {
            policy.batch_verified(verified);
        }
        if let Some(due) = due {
            self.watchdog.set_alarm(due);
        }
        let calls = batches.into_iter().flat_map(|mut batch| {
            if batch.calls.len() > 1 {
                // Triton batches calls only if they have the same inputs.
                let rows = batch.calls.iter_mut().flatten();
                rows.for_each(|row| pad_empty_proposal(&mut row.call));
            }
            let calls = batch.calls.into_iter();
            calls.map(move |rows| InFlightCall::new(batch.role, Some(batch.number), rows))
        });
        self.send(calls.collect());
    }

    /// Send the batches that have waited long enough.
    pub fn flush(self: &Arc<Self>) {
        self.submit(None, None);
    }

    /// Send a call without the batcher: it neither waits nor shares a batch.
    pub fn send_alone(self: &Arc<Self>, row: Row) {
        self.send(vec![InFlightCall::new(row.call.role, None, vec![row])]);
    }

    /// Send calls. All are prepared before the first one is sent, because an engine may start a
    /// step with the calls that have arrived.
    fn send(self: &Arc<Self>, calls: Vec<InFlightCall>) {
        let calls = calls.into_iter().map(Arc::new);
        let prepared: Vec<_> = calls.filter_map(|call| self.prepare(call)).collect();
        for call in prepared {
            match call.call.start() {
                Ok(started) => {
                    if let Some(sequence) = call.cancelled_by {
                        sequence.set_cancellable(Some(started));
                    }
                }
                Err(error) => {
                    locked(&self.calls).remove(&call.key);
                    self.fail(&call.sent, engine_error(error));
                }
            }
        }
    }

    /// Prepare a call; None if that failed, and its rows have the error.
    fn prepare(self: &Arc<Self>, sent: Arc<InFlightCall>) -> Option<Prepared<'_>> {
        let (inputs, outputs, cancelled_by) = sent.contents();
        let key = self.next_number();
        let (bls, answered) = (Arc::clone(self), Arc::clone(&sent));
        let listener = Box::new(move |response: Response| {
            bls.on_response(&answered, key, response);
        });
        let model = self.engine_name(sent.role);
        match PreparedCall::new(&self.server, model, inputs, &outputs, listener) {
            Ok(call) => {
                locked(&self.calls).insert(key, Arc::clone(&sent));
                Some(Prepared {
                    call,
                    key,
                    sent,
                    cancelled_by,
                })
            }
            Err(error) => {
                self.fail(&sent, engine_error(error));
                None
            }
        }
    }

    /// Process a response of an engine.
    fn on_response(self: &Arc<Self>, sent: &InFlightCall, key: u64, response: Response) {
        let outputs = response.outputs.map(|result| result.map_err(engine_error));
        match (outputs, sent.streamed) {
            (Some(Ok(outputs)), true) if !response.is_final => sent.deliver_streamed(outputs),
            (Some(Ok(outputs)), true) => self.deliver_outputs(sent, outputs),
            // A stream may end without a last token.
            (None, true) if response.is_final => self.deliver_outputs(sent, Vec::new()),
            (Some(Ok(outputs)), false) if !outputs.is_empty() => {
                self.deliver_outputs(sent, outputs);
            }
            // The refusal of a call with several rows does not name the row at fault.
            (Some(Err(Error::EngineRefused(_))), _) if sent.shared => sent.set_refused(),
            (Some(Err(error)), _) => self.fail(sent, error),
            _ => {}
        }
        if response.is_final {
            locked(&self.calls).remove(&key);
            self.finish(sent);
        }
    }

    fn deliver_outputs(self: &Arc<Self>, sent: &InFlightCall, outputs: Vec<Tensor>) {
        let index = find(&outputs, ROW).filter(|_| sent.shared);
        let index = index.and_then(|tensor| tensor.integers().first().copied());
        if sent.shared {
            self.refusals.store(0, Ordering::Relaxed);
        }
        if let Some(row) = sent.take(index.unwrap_or(0).max(0) as usize) {
            self.deliver(sent, row, Ok(outputs));
        }
    }

    /// Process the end of a call. Rows without a result are sent again one by one if the engine
    /// refused the whole call, and get an error otherwise.
    fn finish(self: &Arc<Self>, sent: &InFlightCall) {
        let pending = sent.take_pending();
        if sent.was_refused() {
            self.count_refusal(sent.role);
            // Only one row may have been at fault. Sent alone, the others succeed.
            let rows = pending.into_iter();
            let calls = rows.map(|row| InFlightCall::new(sent.role, sent.batch, vec![row]));
            self.send(calls.collect());
        } else if !pending.is_empty() {
            let engine = self.engine_name(sent.role);
            let message = format!("{engine} ended the call without an answer: it was cancelled");
            for row in pending {
                self.deliver(sent, row, Err(Error::EngineRefused(message.clone())));
            }
        }
    }

    /// Send single rows if the engines refuse every call with several rows.
    fn count_refusal(&self, role: Role) {
        if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 == MAX_REFUSALS {
            locked(&self.batcher).send_single_rows();
            let engine = self.engine_name(role);
            let message = format!("{engine} takes one prompt a call: the BLS sends one row a call");
            log(Level::Warn, &message);
        }
    }

    /// Deliver this error to all rows without a result.
    fn fail(self: &Arc<Self>, sent: &InFlightCall, error: Error) {
        let engine = self.engine_name(sent.role);
        let error = error.map_message(|message| with_name(engine, message));
        for row in sent.take_pending() {
            self.deliver(sent, row, Err(error.clone()));
        }
    }

    /// Pass the result of a row to its sequence.
    fn deliver(self: &Arc<Self>, sent: &InFlightCall, row: Row, result: EngineResult) {
        let seconds = sent.started.elapsed().as_secs_f64();
        if let Some(number) = row.pipelined {
            self.pipelined_slots.fetch_add(1, Ordering::AcqRel);
            let event = Event::PipelinedCompleted {
                number,
                result,
                seconds,
            };
            return row.sequence.deliver(event, None);
        }
        if let Some(number) = row.call.stream {
            let event = Event::Streamed {
                number,
                result,
                is_final: true,
            };
            return row.sequence.deliver(event, None);
        }
        if !row.call.batchable {
            row.sequence.set_cancellable(None);
        }
        let event = Event::Completed { result, seconds };
        row.sequence.deliver(event, sent.batch);
    }

    /// Fail the calls of engines whose process has died, because Triton never completes them.
    pub fn check_engines(self: &Arc<Self>) {
        let dead: Vec<Role> = locked(&self.processes)
            .iter()
            .filter(|(_, process)| process.as_ref().is_some_and(|process| !process.is_alive()))
            .map(|(role, _)| *role)
            .collect();
        for role in dead {
            // Each check fails the calls of a dead process again, because a call may have been sent
            // just before Triton noticed the death.
            let calls: Vec<Arc<InFlightCall>> = locked(&self.calls)
                .extract_if(|_, sent| sent.role == role)
                .map(|(_, sent)| sent)
                .collect();
            for sent in calls {
                self.fail(&sent, Error::engine_died(self.engine_name(role)));
            }
            // Some releases of Triton start another process in its place.
            if let Some(process) = self.process(role) {
                locked(&self.processes).insert(role, Some(process));
            }
        }
    }
}

fn engine_error(error: triton::Error) -> Error {
    let unavailable = error.code == Code::Unavailable;
    Error::from_engine(error.message, unavailable)
}

/// The first line of an engine's message, after the engine's name.
fn with_name(engine: &str, message: &str) -> String {
    let reason = message.trim().lines().next().unwrap_or_default();
    let reason = if reason.is_empty() {
        "refused without a reason"
    } else {
        reason
    };
    if reason.starts_with(&format!("{engine}:")) {
        reason.to_owned()
    } else {
        format!("{engine}: {reason}")
    }
}
