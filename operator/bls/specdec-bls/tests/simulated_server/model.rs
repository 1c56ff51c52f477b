//! A model that the simulated server has loaded.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use triton_specdec::serving::{
    TRITONBACKEND_ModelFinalize, TRITONBACKEND_ModelInitialize, TRITONBACKEND_ModelInstanceExecute,
};

use triton_sys::TRITONSERVER_MEMORY_CPU;

use crate::engine::{ENGINE, Place};
use crate::triton::{ClientRequest, DECOUPLED, Input, LOOKUP, RELEASED, Reply, take};

const TIMEOUT: Duration = Duration::from_secs(20);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A loaded model, for one test at a time.
pub struct Model(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Model {
    /// A streaming model whose engine has no room for any call.
    pub fn load() -> Self {
        Self::load_with(None, true)
    }

    /// A model whose engine returns its outputs in this place.
    pub fn load_with(engine: Option<Place>, decoupled: bool) -> Self {
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        *ENGINE.lock().unwrap() = engine;
        DECOUPLED.store(decoupled, Ordering::SeqCst);
        assert_eq!(Self::try_load(), None);
        Self(guard)
    }

    /// A streaming model with lookups of so many tokens at least.
    pub fn with_lookups(engine: Place, min_match: usize) -> Self {
        LOOKUP.store(min_match, Ordering::SeqCst);
        let model = Self::load_with(Some(engine), true);
        LOOKUP.store(0, Ordering::SeqCst);
        model
    }

    /// Load a model; the error where that fails.
    pub fn try_load() -> Reply {
        // SAFETY: the simulation serves every call that the library makes.
        take(unsafe { TRITONBACKEND_ModelInitialize(ptr::null_mut()) })
    }

    /// The first response to a request.
    pub fn reply(&self, inputs: Vec<Input>) -> Reply {
        self.replies(vec![inputs], false).remove(0)
    }

    /// The first response to each of several requests that arrive together.
    pub fn replies(&self, requests: Vec<Vec<Input>>, cancelled: bool) -> Vec<Reply> {
        let requests = requests.into_iter();
        let requests =
            requests.map(|inputs| request(c"", inputs, cancelled, TRITONSERVER_MEMORY_CPU));
        let (requests, replies): (Vec<_>, Vec<_>) = requests.unzip();
        execute(&requests);
        let replies = replies.iter();
        let first = replies.map(|reply| reply.recv_timeout(TIMEOUT).unwrap());
        first.collect()
    }

    /// All errors and all outputs of a request whose client reads outputs from this memory.
    pub fn answer(
        &self,
        inputs: Vec<Input>,
        output_memory: c_int,
    ) -> (Vec<(c_int, String)>, Vec<Vec<u8>>) {
        let (request, replies) = request(c"", inputs, false, output_memory);
        execute(&[request]);
        let errors = replies.try_iter().flatten().collect();
        (errors, request.outputs.lock().unwrap().clone())
    }

    /// All responses to each of several requests with ids that arrive together.
    pub fn responses(&self, requests: Vec<(&CStr, Vec<Input>)>) -> Vec<Vec<Reply>> {
        let requests = requests.into_iter();
        let requests =
            requests.map(|(id, inputs)| request(id, inputs, false, TRITONSERVER_MEMORY_CPU));
        let (requests, replies): (Vec<_>, Vec<_>) = requests.unzip();
        execute(&requests);
        replies
            .iter()
            .map(|replies| replies.try_iter().collect())
            .collect()
    }
}

fn request(
    id: &CStr,
    inputs: Vec<Input>,
    cancelled: bool,
    output_memory: c_int,
) -> (&'static ClientRequest, Receiver<Reply>) {
    let (replies, receiver) = channel();
    let request = ClientRequest {
        id: id.into(),
        inputs,
        replies,
        cancelled,
        output_memory,
        outputs: Mutex::default(),
    };
    // It outlives the test: the library may still release it.
    (Box::leak(Box::new(request)), receiver)
}

/// Pass requests to the library, and wait until it has released them.
fn execute(requests: &[&'static ClientRequest]) {
    let released = RELEASED.load(Ordering::SeqCst);
    let pointers = requests.iter().map(|request| ptr::from_ref(*request));
    let mut pointers: Vec<_> = pointers.map(|request| request.cast_mut().cast()).collect();
    let count = pointers.len();
    // SAFETY: there are as many requests as stated, which live to the end of the process.
    let failed = take(unsafe {
        TRITONBACKEND_ModelInstanceExecute(ptr::null_mut(), pointers.as_mut_ptr(), count as u32)
    });
    assert_eq!(failed, None);
    wait_until("requests were not released", || {
        RELEASED.load(Ordering::SeqCst) >= released + count
    });
}

/// Wait until a condition holds.
pub fn wait_until(otherwise: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{otherwise}");
        std::thread::yield_now();
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: as above.
        let failed = take(unsafe { TRITONBACKEND_ModelFinalize(ptr::null_mut()) });
        assert_eq!(failed, None);
    }
}
