//! Sends the responses to one request, whose prompts are decoded concurrently.

use std::collections::BTreeSet;
use std::sync::Mutex;

use triton::{Level, Request, Tensor, log};

use super::stops::Stoppable;
use crate::error::Error;
use crate::lock::locked;
use crate::request::task::Task;
use crate::response::{stacked, tensors};
use crate::sequence::part::Part;

/// How parts are sent.
enum Mode {
    /// Each part immediately. With `accumulate`, each part carries the whole text so far.
    Stream {
        accumulate: bool,
        texts: Vec<String>,
    },
    /// Together, as the rows of the single response of a model without streaming.
    Whole {
        rows: Vec<Vec<Tensor>>,
        error: Option<Error>,
    },
}

struct State {
    /// None after the last response.
    request: Option<Request>,
    mode: Mode,
    /// Prompts that have not ended.
    pending: usize,
    failed: bool,
    /// A response could not be sent, and no other one would arrive.
    broken: bool,
}

/// The reply to one request, which the sequences of its prompts share.
///
/// Its lock is held while a response is sent, which keeps the responses in order. This cannot
/// deadlock, because Triton does not call this library while it sends a response.
pub struct Reply {
    state: Mutex<State>,
    stoppable: Stoppable,
    outputs: BTreeSet<String>,
}

impl Reply {
    /// A reply with a response for each part. With `accumulate`, each response carries the whole
    /// text so far.
    pub fn stream(
        request: Request,
        stoppable: Stoppable,
        rows: usize,
        outputs: BTreeSet<String>,
        accumulate: bool,
    ) -> Self {
        let mode = Mode::Stream {
            accumulate,
            texts: vec![String::new(); rows],
        };
        Self::new(request, stoppable, rows, outputs, mode)
    }

    /// A reply with one response, which has a row for each prompt.
    pub fn whole(
        request: Request,
        stoppable: Stoppable,
        rows: usize,
        outputs: BTreeSet<String>,
    ) -> Self {
        let mode = Mode::Whole {
            rows: vec![Vec::new(); rows],
            error: None,
        };
        Self::new(request, stoppable, rows, outputs, mode)
    }

    fn new(
        request: Request,
        stoppable: Stoppable,
        rows: usize,
        outputs: BTreeSet<String>,
        mode: Mode,
    ) -> Self {
        let state = Mutex::new(State {
            request: Some(request),
            mode,
            pending: rows,
            failed: false,
            broken: false,
        });
        Self {
            state,
            stoppable,
            outputs,
        }
    }

    /// Whether the client has cancelled or stopped the request or disconnected, or cannot receive
    /// responses.
    pub fn is_cancelled(&self) -> bool {
        if self.stoppable.is_stopped() {
            return true;
        }
        let state = locked(&self.state);
        state.broken || state.request.as_ref().is_some_and(Request::is_cancelled)
    }

    /// Send a part of the answer to the prompt at index `row`.
    pub fn send_part(&self, row: usize, task: &Task, part: Part) {
        let mut state = locked(&self.state);
        let State {
            request,
            mode,
            broken,
            ..
        } = &mut *state;
        let Some(request) = request.as_ref().filter(|_| !*broken) else {
            return;
        };
        match mode {
            Mode::Stream { accumulate, texts } => {
                let Some(text) = texts.get_mut(row) else {
                    return;
                };
                if *accumulate {
                    text.push_str(&part.text);
                } else {
                    text.clone_from(&part.text);
                }
                let outputs = tensors(text, row, task, part, &self.outputs);
                let sent = request.send(&outputs, false);
                *broken = sent.is_err();
                log_failure(sent);
            }
            Mode::Whole { rows, .. } => {
                if let Some(outputs) = rows.get_mut(row) {
                    let text = part.text.clone();
                    *outputs = tensors(&text, row, task, part, &self.outputs);
                }
            }
        }
    }

    /// Report that the answer to one prompt is complete. The last one completes the request.
    pub fn row_completed(&self) {
        let mut state = locked(&self.state);
        state.pending = state.pending.saturating_sub(1);
        if state.pending == 0 {
            close(&mut state);
        }
    }

    /// Report that the answer to one prompt ends with this error.
    pub fn row_failed(&self, error: Error) {
        let mut state = locked(&self.state);
        state.failed = true;
        let State {
            request,
            mode,
            broken,
            ..
        } = &mut *state;
        match mode {
            Mode::Stream { .. } => {
                if let Some(request) = request.as_ref().filter(|_| !*broken) {
                    log_failure(request.send_error(&error.into(), false));
                }
            }
            Mode::Whole { error: last, .. } => *last = Some(error),
        }
        drop(state);
        self.row_completed();
    }
}

/// Send the last response and release the request.
fn close(state: &mut State) {
    let Some(request) = state.request.take() else {
        return;
    };
    let result = match &mut state.mode {
        Mode::Stream { .. } => request.send_end(),
        Mode::Whole { rows, error } => match error.take() {
            Some(error) => request.send_error(&error.into(), true),
            None => match stacked(std::mem::take(rows)) {
                Ok(outputs) => request.send(&outputs, true),
                Err(message) => request.send_error(&triton::Error::internal(message), true),
            },
        },
    };
    log_failure(result);
    request.release(!state.failed);
}

/// Log a response that could not be sent, such as to a client that has disconnected.
fn log_failure(result: Result<(), triton::Error>) {
    if let Err(error) = result {
        log(
            Level::Warn,
            &format!("tensorrt_llm_bls: a response could not be sent: {error}"),
        );
    }
}
