//! Requests that stop other requests: the input `stop`, with the id of the request to stop.
//!
//! TensorRT-LLM's engines have the same input. A client needs it where it cannot cancel a request
//! safely: some releases of Triton can crash or block when a client cancels a gRPC stream.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use triton::{DataType, Tensor};

use crate::error::Error;
use crate::lock::locked;

/// The input that makes a request stop the others with its id.
pub const INPUT: &str = "stop";

const NO_ID: &str = "stop is true in a request without an id: send it with the id of the request \
                     to stop";

/// Whether a request asks to stop others.
pub fn is_set(inputs: &[Tensor]) -> bool {
    let stop = inputs.iter().find(|input| input.name == INPUT);
    stop.is_some_and(|stop| {
        stop.kind == DataType::Bool && stop.data.first().is_some_and(|b| *b != 0)
    })
}

/// The requests of a model by their ids.
#[derive(Default)]
pub struct Stops {
    flags: Mutex<HashMap<String, Vec<Arc<AtomicBool>>>>,
}

impl Stops {
    /// Stop every request with this id; where there is none, it has ended already.
    ///
    /// # Errors
    /// The id is empty.
    pub fn stop(&self, id: &str) -> Result<(), Error> {
        if id.is_empty() {
            return Err(Error::InvalidRequest(NO_ID.to_owned()));
        }
        for flag in locked(&self.flags).get(id).into_iter().flatten() {
            flag.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// A request that its client may stop, until this value is dropped.
pub struct Stoppable {
    stops: Arc<Stops>,
    id: String,
    stopped: Arc<AtomicBool>,
}

impl Stoppable {
    /// A request with this id. One without an id cannot be stopped.
    pub fn new(stops: &Arc<Stops>, id: String) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        if !id.is_empty() {
            let mut flags = locked(&stops.flags);
            flags
                .entry(id.clone())
                .or_default()
                .push(Arc::clone(&stopped));
        }
        Self {
            stops: Arc::clone(stops),
            id,
            stopped,
        }
    }

    /// Whether the client has stopped the request.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        let mut flags = locked(&self.stops.flags);
        if let Some(same) = flags.get_mut(&self.id) {
            same.retain(|flag| !Arc::ptr_eq(flag, &self.stopped));
            if same.is_empty() {
                flags.remove(&self.id);
            }
        }
    }
}
