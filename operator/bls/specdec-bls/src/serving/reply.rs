//! What a client gets of its request's prompts, which answer side by side.

use std::collections::BTreeSet;
use std::sync::Mutex;

use triton::{Level, Request, Tensor, log};

use crate::error::Error;
use crate::lock::locked;
use crate::part::Part;
use crate::response::{stacked, tensors};
use crate::task::Task;

/// How parts leave.
enum Way {
    /// As they come; with `accumulate`, each carries the whole text so far.
    Stream {
        accumulate: bool,
        texts: Vec<String>,
    },
    /// As rows of the one response that a model without streaming must send.
    Whole {
        rows: Vec<Vec<Tensor>>,
        failure: Option<Error>,
    },
}

struct Open {
    /// None once everything was sent.
    request: Option<Request>,
    way: Way,
    /// Prompts that have not ended.
    left: usize,
    failed: bool,
}

/// Answers one request; its prompts' threads share it.
pub struct Reply {
    open: Mutex<Open>,
    outputs: BTreeSet<String>,
}

impl Reply {
    /// Parts of a stream, each with the whole text so far where `accumulate` says so.
    pub fn stream(
        request: Request,
        rows: usize,
        outputs: BTreeSet<String>,
        accumulate: bool,
    ) -> Self {
        let way = Way::Stream {
            accumulate,
            texts: vec![String::new(); rows],
        };
        Self::new(request, rows, outputs, way)
    }

    /// One response with a row for each prompt.
    pub fn whole(request: Request, rows: usize, outputs: BTreeSet<String>) -> Self {
        let way = Way::Whole {
            rows: vec![Vec::new(); rows],
            failure: None,
        };
        Self::new(request, rows, outputs, way)
    }

    fn new(request: Request, rows: usize, outputs: BTreeSet<String>, way: Way) -> Self {
        let open = Mutex::new(Open {
            request: Some(request),
            way,
            left: rows,
            failed: false,
        });
        Self { open, outputs }
    }

    /// Whether the client has gone away.
    pub fn cancelled(&self) -> bool {
        let open = locked(&self.open);
        open.request.as_ref().is_some_and(Request::is_cancelled)
    }

    /// Take a part of one prompt's answer.
    pub fn part(&self, row: usize, task: &Task, part: Part) {
        let mut open = locked(&self.open);
        let Open { request, way, .. } = &mut *open;
        let Some(request) = request else {
            return;
        };
        let result = match way {
            Way::Stream { accumulate, texts } => {
                if *accumulate {
                    texts[row].push_str(&part.text);
                } else {
                    texts[row].clone_from(&part.text);
                }
                let made = tensors(&texts[row], row, task, part, &self.outputs);
                request.send(&made, false)
            }
            Way::Whole { rows, .. } => {
                let text = part.text.clone();
                rows[row] = tensors(&text, row, task, part, &self.outputs);
                Ok(())
            }
        };
        said(result);
    }

    /// One prompt has its whole answer; the last one closes the request.
    pub fn done(&self) {
        let mut open = locked(&self.open);
        open.left = open.left.saturating_sub(1);
        if open.left == 0 {
            close(&mut open);
        }
    }

    /// One prompt ends with an error.
    pub fn fail(&self, error: Error) {
        let mut open = locked(&self.open);
        open.failed = true;
        let Open { request, way, .. } = &mut *open;
        match way {
            Way::Stream { .. } => {
                if let Some(request) = request {
                    said(request.send_error(&error.into(), false));
                }
            }
            Way::Whole { failure, .. } => *failure = Some(error),
        }
        drop(open);
        self.done();
    }
}

fn close(open: &mut Open) {
    let Some(request) = open.request.take() else {
        return;
    };
    let result = match &mut open.way {
        Way::Stream { .. } => request.send_end(),
        Way::Whole { rows, failure } => match failure.take() {
            Some(error) => request.send_error(&error.into(), true),
            None => match stacked(std::mem::take(rows)) {
                Ok(tensors) => request.send(&tensors, true),
                Err(message) => request.send_error(&triton::Error::internal(message), true),
            },
        },
    };
    said(result);
    request.release(!open.failed);
}

/// The client may be gone; there is nobody else to tell.
fn said(result: Result<(), triton::Error>) {
    if let Err(error) = result {
        log(
            Level::Warn,
            &format!("tensorrt_llm_bls: an answer could not be sent: {error}"),
        );
    }
}
