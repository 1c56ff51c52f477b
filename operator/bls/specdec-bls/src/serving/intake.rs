//! Requests on their way in: measured on Triton's thread, read on a thread of the pool.
//!
//! Triton has one thread for all requests of a model, and tokens of a megabyte of text take a
//! second. That thread therefore only compares sizes; whatever it waits for keeps later requests
//! in Triton's queue.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::bls::Bls;
use super::metrics::Metrics;
use super::reply::Reply;
use triton::{Level, Request, log, memory};

use crate::error::Error;
use crate::limits::{encoded, is_long};
use crate::request::{Parsed, parse};
use crate::response::wanted;

const TOO_MANY: &str = "tensorrt_llm_bls has as many long prompts waiting as it has room for: \
                        send this one again later";

/// Bytes of text behind which free memory goes back to the system. Tokenizing takes almost two
/// hundred times the text's memory, which glibc would keep; giving it back holds up whoever
/// allocates meanwhile, so it is for texts that few clients send.
const TRIMMED: usize = 256 << 10;

/// A request that is counted as in flight although none of its prompts is being answered yet.
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
    /// Take a request and return; its answers leave from other threads. Waits while short requests
    /// come faster than they are read and find a slot, and later ones wait in Triton's queue.
    pub fn accept(self: &Arc<Self>, request: Request) {
        let bytes = match self.measured(&request) {
            Ok(bytes) => bytes,
            Err(refusal) => return refuse(request, refusal),
        };
        let (bls, counted) = (Arc::clone(self), Counted::new(&self.metrics));
        if !is_long(bytes) {
            let job = move || bls.begin_request(request, counted);
            self.pool.short(Box::new(job));
        } else if self.pool.has_room(bytes) {
            let job = move || {
                bls.begin_request(request, counted);
                if bytes > TRIMMED {
                    memory::release_free_memory();
                }
            };
            self.pool.long(bytes, Box::new(job));
        } else {
            drop(counted);
            refuse(request, Error::Overloaded(TOO_MANY.to_owned()));
        }
    }

    /// Bytes of text that will be encoded, none of which was copied or encoded yet.
    fn measured(&self, request: &Request) -> Result<usize, Error> {
        let mut text = 0_usize;
        for input in request.input_sizes()? {
            self.limits
                .size(&input.name, &input.shape, input.byte_size)?;
            text = text.saturating_add(encoded(&input.name, input.byte_size));
        }
        Ok(text)
    }

    /// Start a request's prompts, each when there is a slot for it.
    fn begin_request(self: &Arc<Self>, request: Request, counted: Counted) {
        let (parsed, outputs) = match self.read(&request) {
            Ok(read) => read,
            Err(refusal) => {
                drop(counted);
                return refuse(request, refusal);
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
            self.take_slot();
            // Who has the whole answer finds its counts in the metrics.
            counted.take_if(|_| row + 1 == rows);
            self.begin(row, Arc::new(task), &reply);
        }
    }

    /// What a request asks for, and which outputs its answers have.
    fn read(&self, request: &Request) -> Result<(Parsed, BTreeSet<String>), Error> {
        if request.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let given = request.tensors()?;
        let requested = request.requested_outputs()?;
        let parsed = parse(&given, &self.settings.server, self.tokenizer.as_ref())?;
        let requested = requested.iter().map(String::as_str);
        Ok((parsed, wanted(&self.settings.declared, requested)))
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
