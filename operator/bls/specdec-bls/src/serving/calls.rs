//! Engine calls: sends batches to the engines and their results to the sequences.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use triton::{Code, InferenceCall, Level, Response, Tensor, log};

use super::batch::{InFlightBatch, Row};
use super::model::Bls;
use crate::batching::merge::{ROW, merged, single};
use crate::engine::{EngineResult, Role, find};
use crate::error::Error;
use crate::lock::locked;
use crate::sequence::Event;

/// Shared calls that an engine refuses in a row before no more are made.
const MAX_REFUSALS: usize = 3;

impl Bls {
    /// Report that a row of batch `completed` has its result, submit its sequence's next row if
    /// there is one, and send the batches that are complete by that.
    pub fn submit(self: &Arc<Self>, completed: Option<u64>, row: Option<Row>) {
        let now = Instant::now();
        let mut batcher = locked(&self.batcher);
        if let Some(row) = row {
            batcher.submit(row.call.role, row);
        }
        if let Some(number) = completed {
            batcher.row_completed(number, now);
        }
        let batches = batcher.take_ready(now);
        let due = batcher.due(now);
        drop(batcher);
        if let Some(due) = due {
            self.watchdog.set_alarm(due);
        }
        for batch in batches {
            self.send(batch.role, Some(batch.number), batch.rows);
        }
    }

    /// Send the batches that have waited long enough.
    pub fn flush(self: &Arc<Self>) {
        self.submit(None, None);
    }

    /// Send a call that shares no batch.
    pub fn send_alone(self: &Arc<Self>, row: Row) {
        self.send(row.call.role, None, vec![row]);
    }

    fn send(self: &Arc<Self>, role: Role, number: Option<u64>, mut rows: Vec<Row>) {
        let (inputs, outputs) = match rows.as_mut_slice() {
            [row] => (single(&mut row.call), std::mem::take(&mut row.call.outputs)),
            _ => merged(&rows.iter().map(|row| &row.call).collect::<Vec<_>>()),
        };
        let lasting = rows.first().filter(|row| !row.call.batchable);
        let lasting = lasting.map(|row| Arc::clone(&row.sequence));
        let batch = Arc::new(InFlightBatch::new(role, number, rows));
        let key = self.next_number();
        locked(&self.batches).insert(key, Arc::clone(&batch));
        let (bls, answered) = (Arc::clone(self), Arc::clone(&batch));
        let listener = Box::new(move |response: Response| {
            bls.on_response(&answered, key, response);
        });
        let model = self.engine_name(role);
        match InferenceCall::start(&self.server, model, inputs, &outputs, listener) {
            Ok(call) => {
                if let Some(sequence) = lasting {
                    sequence.set_cancellable(Some(call));
                }
            }
            Err(error) => {
                locked(&self.batches).remove(&key);
                self.fail(&batch, engine_error(error));
            }
        }
    }

    /// An engine has sent a response.
    fn on_response(self: &Arc<Self>, batch: &InFlightBatch, key: u64, response: Response) {
        match response.outputs.map(|result| result.map_err(engine_error)) {
            Some(Ok(outputs)) if !outputs.is_empty() => self.deliver_outputs(batch, outputs),
            // A refusal of a shared call does not name the row at fault.
            Some(Err(Error::EngineRefused(_))) if batch.shared => batch.set_refused(),
            Some(Err(error)) => self.fail(batch, error),
            _ => {}
        }
        if response.is_final {
            locked(&self.batches).remove(&key);
            self.finish(batch);
        }
    }

    fn deliver_outputs(self: &Arc<Self>, batch: &InFlightBatch, outputs: Vec<Tensor>) {
        let index = find(&outputs, ROW).filter(|_| batch.shared);
        let index = index.and_then(|tensor| tensor.integers().first().copied());
        if batch.shared {
            self.refusals.store(0, Ordering::Relaxed);
        }
        if let Some(row) = batch.take(index.unwrap_or(0).max(0) as usize) {
            self.deliver(batch, row, Ok(outputs));
        }
    }

    /// No response follows: rows without a result get an error, or are sent again one by one.
    fn finish(self: &Arc<Self>, batch: &InFlightBatch) {
        let rest = batch.take_rest();
        if batch.was_refused() {
            self.count_refusal(batch.role);
            // One row may have been at fault; the others can be served.
            for row in rest {
                self.send(batch.role, batch.number, vec![row]);
            }
        } else if !rest.is_empty() {
            let engine = self.engine_name(batch.role);
            let message = format!("{engine} ended the call without an answer: it was cancelled");
            for row in rest {
                self.deliver(batch, row, Err(Error::EngineRefused(message.clone())));
            }
        }
    }

    /// Stop batching for engines that refuse every shared call.
    fn count_refusal(&self, role: Role) {
        if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 == MAX_REFUSALS {
            locked(&self.batcher).stop_batching();
            let engine = self.engine_name(role);
            let message = format!("{engine} takes one prompt a call: answers call it one by one");
            log(Level::Warn, &message);
        }
    }

    /// All rows without a result get this error.
    fn fail(self: &Arc<Self>, batch: &InFlightBatch, error: Error) {
        let engine = self.engine_name(batch.role);
        let error = error.map_message(|message| with_name(engine, message));
        for row in batch.take_rest() {
            self.deliver(batch, row, Err(error.clone()));
        }
    }

    fn deliver(self: &Arc<Self>, batch: &InFlightBatch, row: Row, result: EngineResult) {
        let seconds = batch.started.elapsed().as_secs_f64();
        if let Some(number) = row.pipelined {
            self.pipelined_slots.fetch_add(1, Ordering::AcqRel);
            let event = Event::PipelinedCompleted {
                number,
                result,
                seconds,
            };
            return row.sequence.deliver(event, None);
        }
        if !row.call.batchable {
            row.sequence.set_cancellable(None);
        }
        let event = Event::Completed { result, seconds };
        row.sequence.deliver(event, batch.number);
    }

    /// End the calls of engines whose process has died: Triton never answers them.
    pub fn check_engines(self: &Arc<Self>) {
        let dead: Vec<Role> = locked(&self.processes)
            .iter()
            .filter(|(_, process)| process.as_ref().is_some_and(|process| !process.is_alive()))
            .map(|(role, _)| *role)
            .collect();
        for role in dead {
            // Every time: a call may have been sent just before Triton noticed.
            let batches: Vec<Arc<InFlightBatch>> = locked(&self.batches)
                .extract_if(|_, batch| batch.role == role)
                .map(|(_, batch)| batch)
                .collect();
            for batch in batches {
                self.fail(&batch, Error::engine_died(self.engine_name(role)));
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
