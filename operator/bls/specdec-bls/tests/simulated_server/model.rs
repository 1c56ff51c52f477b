//! A model that the simulated server has loaded.

use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use triton_specdec::serving::{
    TRITONBACKEND_ModelFinalize, TRITONBACKEND_ModelInitialize, TRITONBACKEND_ModelInstanceExecute,
};

use crate::triton::{ClientRequest, Input, RELEASED, Reply, take};

const TIMEOUT: Duration = Duration::from_secs(20);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A loaded model, for one test at a time.
pub struct Model(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Model {
    pub fn load() -> Self {
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(Self::try_load(), None);
        Self(guard)
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
        let released = RELEASED.load(Ordering::SeqCst);
        let (mut requests, replies): (Vec<_>, Vec<Receiver<Reply>>) = requests
            .into_iter()
            .map(|inputs| {
                let (sender, receiver) = channel();
                let request = ClientRequest {
                    inputs,
                    replies: sender,
                    cancelled,
                };
                // It outlives the test: the library may still release it.
                let request = ptr::from_mut(Box::leak(Box::new(request)));
                (request.cast(), receiver)
            })
            .unzip();
        let count = requests.len();
        // SAFETY: as above; there are as many requests as stated.
        let failed = take(unsafe {
            TRITONBACKEND_ModelInstanceExecute(ptr::null_mut(), requests.as_mut_ptr(), count as u32)
        });
        assert_eq!(failed, None);
        let replies = replies
            .iter()
            .map(|reply| reply.recv_timeout(TIMEOUT).unwrap());
        let replies = replies.collect();
        while RELEASED.load(Ordering::SeqCst) < released + count {
            std::thread::yield_now();
        }
        replies
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: as above.
        let failed = take(unsafe { TRITONBACKEND_ModelFinalize(ptr::null_mut()) });
        assert_eq!(failed, None);
    }
}
