//! Requests on their way in: measured on Triton's thread, read on a thread of the pool.
//!
//! Triton has one thread for all requests of a model, and tokenizing a megabyte of text takes a
//! second. That thread therefore only compares sizes. Requests that arrive while it waits stay in
//! Triton's queue.

use std::collections::BTreeSet;
use std::sync::Arc;

use triton::{Level, Request, log, memory};

use super::metrics::Metrics;
use super::model::Bls;
use super::reply::Reply;
use crate::error::Error;
use crate::request::limits::{is_long, tokenized_bytes};
use crate::request::{Parsed, parse};
use crate::response::requested_outputs;

const TOO_MANY: &str = "tensorrt_llm_bls has as many long prompts waiting as it has room for: \
                        send this one again later";

/// Bytes of text after which free memory is returned to the system. Tokenizing takes almost two
/// hundred times the text's memory, which glibc would keep. Other allocations wait for it, so
/// only texts that few clients send are worth it.
const TRIM_BYTES: usize = 256 << 10;

/// Counts a request as in flight before its sequences start.
struct Counted(Arc<Metrics>);

impl Counted {
    fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.in_flight(1);
        Self(Arc::clone(metrics))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.in_flight(-1);
    }
}

impl Bls {
    /// Take over a request. Responses leave from other threads.
    ///
    /// It waits while short requests arrive faster than they are read and get a slot.
    pub fn accept(self: &Arc<Self>, request: Request) {
        let bytes = match self.measure(&request) {
            Ok(bytes) => bytes,
            Err(error) => return refuse(request, error),
        };
        let (bls, counted) = (Arc::clone(self), Counted::new(&self.metrics));
        if !is_long(bytes) {
            let job = move || bls.begin_request(request, counted);
            self.pool.run_short(Box::new(job));
        } else if self.pool.has_room(bytes) {
            let job = move || {
                bls.begin_request(request, counted);
                if bytes > TRIM_BYTES {
                    memory::release_free_memory();
                }
            };
            self.pool.run_long(bytes, Box::new(job));
        } else {
            drop(counted);
            refuse(request, Error::Overloaded(TOO_MANY.to_owned()));
        }
    }

    /// Bytes of text to be tokenized, within the limits. No text is copied for that.
    fn measure(&self, request: &Request) -> Result<usize, Error> {
        let mut text = 0_usize;
        for input in request.input_sizes()? {
            let bytes = input.byte_size;
            self.limits.size(&input.name, &input.shape, bytes)?;
            text = text.saturating_add(tokenized_bytes(&input.name, bytes));
        }
        Ok(text)
    }

    /// Start a sequence for each prompt of a request, as soon as it has a slot.
    fn begin_request(self: &Arc<Self>, request: Request, counted: Counted) {
        let (parsed, outputs) = match self.read(&request) {
            Ok(read) => read,
            Err(error) => {
                drop(counted);
                return refuse(request, error);
            }
        };
        if !parsed.fallback.is_empty() {
            self.metrics.fallback(parsed.fallback);
        }
        self.find_processes();
        let rows = parsed.tasks.len();
        let reply = Arc::new(self.reply(request, rows, outputs));
        let mut counted = Some(counted);
        for (row, task) in parsed.tasks.into_iter().enumerate() {
            self.acquire_slot();
            // Before the last sequence starts: a client with its answer finds exact counts.
            counted.take_if(|_| row + 1 == rows);
            self.start(row, Arc::new(task), &reply);
        }
    }

    /// The tasks of a request, and the outputs of its responses.
    fn read(&self, request: &Request) -> Result<(Parsed, BTreeSet<String>), Error> {
        if request.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let inputs = request.tensors()?;
        let outputs = request.requested_outputs()?;
        let parsed = parse(
            &inputs,
            &self.settings.capabilities,
            self.tokenizer.as_ref(),
        )?;
        let outputs = outputs.iter().map(String::as_str);
        Ok((parsed, requested_outputs(&self.settings.declared, outputs)))
    }

    fn reply(&self, request: Request, rows: usize, outputs: BTreeSet<String>) -> Reply {
        if self.settings.decoupled {
            Reply::stream(request, rows, outputs, self.settings.accumulate_tokens)
        } else {
            Reply::whole(request, rows, outputs)
        }
    }
}

fn refuse(request: Request, error: Error) {
    if let Err(error) = request.send_error(&error.into(), true) {
        log(Level::Error, &error.message);
    }
    request.release(false);
}
