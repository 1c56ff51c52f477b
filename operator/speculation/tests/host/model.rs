//! A model that the simulation has loaded.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::triton::*;

const STALL: Duration = Duration::from_secs(20);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub type Allocate = extern "C" fn(
    Any,
    *const c_char,
    usize,
    c_int,
    i64,
    Any,
    *mut *mut u8,
    *mut Any,
    *mut c_int,
    *mut i64,
) -> *mut Fault;
pub type Free = extern "C" fn(Any, Any, Any, usize, c_int, i64) -> *mut Fault;

/// A loaded model, for one test at a time.
pub struct Model(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Model {
    pub fn load() -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the simulation answers all that it calls.
        let failed = unsafe { TRITONBACKEND_ModelInitialize(ptr::null_mut()) };
        assert!(failed.is_null());
        Self(turn)
    }

    /// What the client of a request reads first.
    pub fn reply(&self, inputs: Vec<Input>) -> Reply {
        self.replies(vec![inputs], false).remove(0)
    }

    /// The same of requests that come together.
    pub fn replies(&self, requests: Vec<Vec<Input>>, cancelled: bool) -> Vec<Reply> {
        let released = RELEASED.load(Ordering::SeqCst);
        let (requests, read): (Vec<*mut Request>, Vec<Receiver<Reply>>) = requests
            .into_iter()
            .map(|inputs| {
                let (replies, read) = channel();
                let request = Request {
                    inputs,
                    replies,
                    cancelled,
                };
                // It outlives the test: the library may still release it.
                (ptr::from_mut(Box::leak(Box::new(request))), read)
            })
            .unzip();
        let count = requests.len();
        // SAFETY: as above.
        let failed = unsafe {
            TRITONBACKEND_ModelInstanceExecute(ptr::null_mut(), requests.as_ptr(), count as u32)
        };
        assert!(failed.is_null());
        let replies = read.iter().map(|one| one.recv_timeout(STALL).unwrap());
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
        assert!(unsafe { TRITONBACKEND_ModelFinalize(ptr::null_mut()) }.is_null());
    }
}
