//! Calls of other models of the same server, without leaving its process.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use super::answer::{allocate, free, read};
use super::error::{INTERNAL, c_text, check, check_engine, guarded, logged};
use super::ffi;
use crate::engine::{Answered, EngineError};
use crate::lock::locked;
use crate::tensor::Tensor;

/// Hears every answer of a call, and with `true` that none follows.
pub type Listener = Box<dyn Fn(Option<Answered>, bool) + Send + Sync>;

/// The server that this library runs in.
pub struct Server {
    server: *mut ffi::Server,
    allocator: *mut ffi::Allocator,
}

// SAFETY: both may be used from any thread.
unsafe impl Send for Server {}
unsafe impl Sync for Server {}

impl Server {
    /// The server of a model.
    ///
    /// # Safety
    /// The model is the one that Triton has just handed over.
    pub unsafe fn of(model: *mut ffi::Model) -> Result<Self, String> {
        let (mut server, mut allocator) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: as promised by the caller.
        unsafe {
            check(ffi::TRITONBACKEND_ModelServer(model, &mut server))?;
            check(ffi::TRITONSERVER_ResponseAllocatorNew(
                &mut allocator,
                allocate,
                free,
                ptr::null(),
            ))?;
        }
        Ok(Self { server, allocator })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: no call is under way when the model goes.
        logged(unsafe { ffi::TRITONSERVER_ResponseAllocatorDelete(self.allocator) });
    }
}

/// A call under way. Keeps what the server reads until the server is done with it.
pub struct Flight {
    inputs: Vec<Tensor>,
    request: Mutex<Handle>,
    listener: Listener,
}

struct Handle(*mut ffi::InnerRequest);

// SAFETY: the pointer is used under its lock, and null once the request was deleted.
unsafe impl Send for Handle {}

impl Flight {
    /// Call a model; the listener hears what it answers, on any thread.
    pub fn start(
        server: &Server,
        model: &CStr,
        inputs: Vec<Tensor>,
        outputs: &[Cow<'static, str>],
        listener: Listener,
    ) -> Result<Arc<Self>, EngineError> {
        let mut request = ptr::null_mut();
        // SAFETY: the model's name is copied.
        check_engine(unsafe {
            ffi::TRITONSERVER_InferenceRequestNew(&mut request, server.server, model.as_ptr(), -1)
        })?;
        let flight = Arc::new(Self {
            inputs,
            request: Mutex::new(Handle(request)),
            listener,
        });
        // One for each of the two callbacks, which give them back.
        let users = [(); 2].map(|()| Arc::into_raw(Arc::clone(&flight)));
        let started = flight.send(server, request, outputs, users);
        if let Err(error) = started {
            *locked(&flight.request) = Handle(ptr::null_mut());
            // SAFETY: Triton did not take the request over, and calls nobody back.
            unsafe {
                logged(ffi::TRITONSERVER_InferenceRequestDelete(request));
                for user in users {
                    drop(Arc::from_raw(user));
                }
            }
            return Err(error);
        }
        Ok(flight)
    }

    fn send(
        &self,
        server: &Server,
        request: *mut ffi::InnerRequest,
        outputs: &[Cow<'static, str>],
        users: [*const Self; 2],
    ) -> Result<(), EngineError> {
        for tensor in &self.inputs {
            add(request, tensor).map_err(EngineError::new)?;
        }
        // SAFETY: names are copied; tensors and listener live until both callbacks were called.
        unsafe {
            for output in outputs {
                let name = c_text(output);
                check_engine(ffi::TRITONSERVER_InferenceRequestAddRequestedOutput(
                    request,
                    name.as_ptr(),
                ))?;
            }
            check_engine(ffi::TRITONSERVER_InferenceRequestSetReleaseCallback(
                request,
                released,
                users[0].cast_mut().cast(),
            ))?;
            check_engine(ffi::TRITONSERVER_InferenceRequestSetResponseCallback(
                request,
                server.allocator,
                ptr::null_mut(),
                responded,
                users[1].cast_mut().cast(),
            ))?;
            check_engine(ffi::TRITONSERVER_ServerInferAsync(
                server.server,
                request,
                ptr::null_mut(),
            ))
        }
    }

    /// Ask the model to end the call.
    pub fn cancel(&self) {
        let handle = locked(&self.request);
        if !handle.0.is_null() {
            // SAFETY: the request is not deleted while the lock is held.
            logged(unsafe { ffi::TRITONSERVER_InferenceRequestCancel(handle.0) });
        }
    }
}

fn add(request: *mut ffi::InnerRequest, tensor: &Tensor) -> Result<(), String> {
    let name = c_text(&tensor.name);
    // SAFETY: name and shape are copied; the data lives as long as the flight.
    unsafe {
        check(ffi::TRITONSERVER_InferenceRequestAddInput(
            request,
            name.as_ptr(),
            tensor.kind as c_int,
            tensor.shape.as_ptr(),
            tensor.shape.len() as u64,
        ))?;
        check(ffi::TRITONSERVER_InferenceRequestAppendInputData(
            request,
            name.as_ptr(),
            tensor.data.as_ptr().cast(),
            tensor.data.len(),
            ffi::CPU,
            0,
        ))
    }
}

extern "C" fn released(_: *mut ffi::InnerRequest, _: u32, user: *mut c_void) {
    let delete = || {
        // SAFETY: the pointer that `start` made for this callback, which is called once.
        let flight = unsafe { Arc::from_raw(user.cast_const().cast::<Flight>()) };
        let mut handle = locked(&flight.request);
        // SAFETY: Triton has given the request back.
        logged(unsafe { ffi::TRITONSERVER_InferenceRequestDelete(handle.0) });
        handle.0 = ptr::null_mut();
    };
    guarded(|| (), delete);
}

extern "C" fn responded(response: *mut ffi::InnerResponse, flags: u32, user: *mut c_void) {
    let last = flags & ffi::FINAL != 0;
    let tell = || {
        let pointer = user.cast_const().cast::<Flight>();
        // SAFETY: as above; only the last call gives the pointer back.
        let flight = unsafe {
            if !last {
                Arc::increment_strong_count(pointer);
            }
            Arc::from_raw(pointer)
        };
        let answered = (!response.is_null()).then(|| {
            let unread = || Err(EngineError::new(INTERNAL));
            let answered = guarded(unread, || read(response));
            // SAFETY: everything was copied out of it.
            logged(unsafe { ffi::TRITONSERVER_InferenceResponseDelete(response) });
            answered
        });
        (flight.listener)(answered, last);
    };
    guarded(|| (), tell);
}

/// A model's name for Triton.
pub fn model_name(name: &str) -> CString {
    c_text(name)
}
