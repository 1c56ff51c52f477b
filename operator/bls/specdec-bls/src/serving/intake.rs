//! Takes over requests: checks their sizes on Triton's thread, and parses them on other threads.
//!
//! Triton has one thread for all requests of a model, and tokenizing a megabyte of text takes a
//! second. That thread therefore only compares sizes. While it waits for room in the pool, further
//! requests stay in Triton's queue.

use std::collections::BTreeSet;
use std::sync::Arc;

use triton::{Level, Request, log, memory};

use super::metrics::Metrics;
use super::model::Bls;
use super::reply::Reply;
use super::stops::{self, Stoppable};
use crate::error::Error;
use crate::request::limits::{is_long, tokenized_bytes};
use crate::request::{Parsed, parse};
use crate::response::requested_outputs;

const TOO_MANY: &str = "tensorrt_llm_bls has as many long prompts waiting as it has room for: \
                        send this one again later";

/// After a request with more bytes of text than this, free memory is returned to the system.
/// Tokenizing takes almost two hundred times the memory of the text, and glibc would keep it.
/// Returning it blocks other allocations, so it is done only after texts of a rare size.
const TRIM_BYTES: usize = 256 << 10;

/// Counts a request in the gauges until its last prompt has a slot, or until it is refused.
///
/// The request counts once as in flight, and each prompt without a slot counts as waiting. Before
/// the request is parsed, it counts as one waiting prompt.
struct Counted {
    metrics: Arc<Metrics>,
    waiting: i32,
}

impl Counted {
    /// A request that [`Bls::announce`] has counted.
    fn announced(metrics: &Arc<Metrics>) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            waiting: 1,
        }
    }

    /// Set the number of prompts that wait.
    fn set_waiting(&mut self, prompts: usize) {
        let prompts = i32::try_from(prompts).unwrap_or(i32::MAX);
        self.metrics.waiting(prompts - self.waiting);
        self.waiting = prompts;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set_waiting(0);
        self.metrics.in_flight(-1);
    }
}

/// What a request that has arrived asks for.
enum Arrival {
    /// To stop other requests, which it has done.
    Stop,
    /// An answer; `bytes` of its text must be tokenized.
    New { bytes: usize, stoppable: Stoppable },
}

impl Bls {
    /// Count requests that have arrived. Triton hands over several at once, and the BLS takes them
    /// over one after the other, so the last ones already count while they wait for the first.
    pub fn announce(&self, requests: usize) {
        let requests = i32::try_from(requests).unwrap_or(i32::MAX);
        self.metrics.in_flight(requests);
        self.metrics.waiting(requests);
    }

    /// Take over a request that was announced. Its responses are sent from other threads.
    ///
    /// This blocks while the queue of short requests is full, which happens if requests arrive
    /// faster than they are parsed and get slots.
    pub fn accept(self: &Arc<Self>, request: Request) {
        let counted = Counted::announced(&self.metrics);
        let arrival = match self.examine(&request) {
            Ok(arrival) => arrival,
            Err(error) => {
                drop(counted);
                return refuse(request, error);
            }
        };
        let Arrival::New { bytes, stoppable } = arrival else {
            drop(counted);
            return finish(request);
        };
        let bls = Arc::clone(self);
        if !is_long(bytes) {
            let job = move || bls.begin_request(request, counted, stoppable);
            self.pool.run_short(Box::new(job));
        } else if self.pool.has_room(bytes) {
            let job = move || {
                bls.begin_request(request, counted, stoppable);
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

    /// Check the limits, and stop the requests that this one names. No text is copied for that.
    ///
    /// Requests are registered here, on Triton's thread, in the order of their arrival: so a
    /// request that stops another one finds it, even while it still waits for a slot.
    fn examine(&self, request: &Request) -> Result<Arrival, Error> {
        let mut bytes = 0_usize;
        let mut may_stop = false;
        for input in request.input_sizes()? {
            self.limits
                .check_size(&input.name, &input.shape, input.byte_size)?;
            bytes = bytes.saturating_add(tokenized_bytes(&input.name, input.byte_size));
            may_stop |= input.name == stops::INPUT;
        }
        let id = request.id()?;
        if may_stop && stops::is_set(&request.tensors()?) {
            self.stops.stop(&id)?;
            return Ok(Arrival::Stop);
        }
        let stoppable = Stoppable::new(&self.stops, id);
        Ok(Arrival::New { bytes, stoppable })
    }

    /// Start a sequence for each prompt of a request, as soon as it has a slot.
    fn begin_request(
        self: &Arc<Self>,
        request: Request,
        mut counted: Counted,
        stoppable: Stoppable,
    ) {
        let (parsed, outputs) = match self.parse(&request, &stoppable) {
            Ok(parsed) => parsed,
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
        let reply = Arc::new(self.reply(request, stoppable, rows, outputs));
        counted.set_waiting(rows);
        let mut counted = Some(counted);
        for (row, task) in parsed.tasks.into_iter().enumerate() {
            self.acquire_slot();
            // The gauges change before the sequence starts, so that they are exact when the client
            // has its answer. The last prompt ends the count.
            counted.take_if(|counted| {
                counted.set_waiting(rows - row - 1);
                row + 1 == rows
            });
            self.start(row, Arc::new(task), &reply);
        }
    }

    /// The tasks of a request, and the names of the outputs that its responses carry.
    fn parse(
        &self,
        request: &Request,
        stoppable: &Stoppable,
    ) -> Result<(Parsed, BTreeSet<String>), Error> {
        if request.is_cancelled() || stoppable.is_stopped() {
            return Err(Error::Cancelled);
        }
        let inputs = request.tensors()?;
        let outputs = request.requested_outputs()?;
        let mut parsed = parse(
            &inputs,
            &self.settings.capabilities,
            self.tokenizer.as_ref(),
        )?;
        let outputs = outputs.iter().map(String::as_str);
        let outputs = requested_outputs(&self.settings.declared, outputs);
        for task in &mut parsed.tasks {
            task.limit_outputs(&outputs);
        }
        Ok((parsed, outputs))
    }

    fn reply(
        &self,
        request: Request,
        stoppable: Stoppable,
        rows: usize,
        outputs: BTreeSet<String>,
    ) -> Reply {
        if self.settings.decoupled {
            let accumulate = self.settings.accumulate_tokens;
            Reply::stream(request, stoppable, rows, outputs, accumulate)
        } else {
            Reply::whole(request, stoppable, rows, outputs)
        }
    }
}

/// Answer a request that stopped another one: its only response has no outputs.
fn finish(request: Request) {
    if let Err(error) = request.send(&[], true) {
        log(Level::Error, &error.message);
    }
    request.release(true);
}

fn refuse(request: Request, error: Error) {
    if let Err(error) = request.send_error(&error.into(), true) {
        log(Level::Error, &error.message);
    }
    request.release(false);
}
