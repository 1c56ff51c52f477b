//! Inference requests to other models of the same server, without leaving its process.
//!
//! Starting a call does not wait for the model. The responses arrive later on threads of Triton,
//! which run the call's listener.

use std::borrow::Cow;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use triton_sys as sys;

use crate::error::{Error, c_string, catch_panic, check, check_or_log};
use crate::outputs::read_outputs;
use crate::server::Server;
use crate::tensor::Tensor;

/// One response to a call.
#[derive(Debug)]
pub struct Response {
    /// The outputs, or the model's error. None for a response that only ends the call.
    pub outputs: Option<Result<Vec<Tensor>, Error>>,
    /// No further response follows.
    pub is_final: bool,
}

/// The listener of a call: it receives every response, on a thread of Triton.
pub type OnResponse = Box<dyn Fn(Response) + Send + Sync>;

/// A call in flight. It keeps the inputs alive until Triton has released the request.
pub struct InferenceCall {
    inputs: Vec<Tensor>,
    request: Mutex<RequestPointer>,
    listener: OnResponse,
}

/// Triton's request; null after its deletion.
struct RequestPointer(*mut sys::TRITONSERVER_InferenceRequest);

// SAFETY: the pointer is only used under the lock that holds it.
unsafe impl Send for RequestPointer {}

/// A call that has all its inputs and was not sent yet.
///
/// Sending a prepared call takes microseconds. If all calls of a batch are prepared before the
/// first one is sent, they arrive at the model almost at the same time.
pub struct PreparedCall<'a> {
    call: Arc<InferenceCall>,
    server: &'a Server,
    sent: bool,
}

impl<'a> PreparedCall<'a> {
    /// Prepare a call of a model.
    ///
    /// # Errors
    /// Triton rejects the call: the model or one of its tensors does not exist.
    pub fn new(
        server: &'a Server,
        model: &str,
        inputs: Vec<Tensor>,
        outputs: &[Cow<'static, str>],
        listener: OnResponse,
    ) -> Result<Self, Error> {
        let model = c_string(model);
        let mut request = ptr::null_mut();
        // SAFETY: Triton copies the model's name.
        unsafe {
            check(sys::TRITONSERVER_InferenceRequestNew(
                &mut request,
                server.server,
                model.as_ptr(),
                -1,
            ))?;
        }
        let call = Arc::new(InferenceCall {
            inputs,
            request: Mutex::new(RequestPointer(request)),
            listener,
        });
        let prepared = Self {
            call,
            server,
            sent: false,
        };
        // SAFETY: the request was not sent. Triton copies names; the tensors live as long as the
        // call, which outlives the request.
        unsafe {
            for tensor in &prepared.call.inputs {
                add_input(request, tensor)?;
            }
            for output in outputs {
                let name = c_string(output);
                check(sys::TRITONSERVER_InferenceRequestAddRequestedOutput(
                    request,
                    name.as_ptr(),
                ))?;
            }
        }
        Ok(prepared)
    }

    /// Send the call. If this fails, the listener is never run.
    ///
    /// # Errors
    /// Triton or the model's queue rejects the call.
    pub fn start(mut self) -> Result<Arc<InferenceCall>, Error> {
        let call = Arc::clone(&self.call);
        // One reference for each of the two callbacks, which release them.
        let references = [(); 2].map(|()| Arc::into_raw(Arc::clone(&call)));
        // SAFETY: each reference is a reference to this call, and lives until its callback runs.
        match unsafe { self.send(references) } {
            Ok(()) => self.sent = true,
            Err(error) => {
                // SAFETY: Triton did not take the request over and runs no callback.
                unsafe {
                    for reference in references {
                        drop(Arc::from_raw(reference));
                    }
                }
                return Err(error);
            }
        }
        Ok(call)
    }

    /// # Safety
    /// Each pointer holds one reference to this call.
    unsafe fn send(
        &self,
        [on_release, on_response]: [*const InferenceCall; 2],
    ) -> Result<(), Error> {
        let request = self.call.request().0;
        // SAFETY: as promised by the caller. Tensors and listener live until both callbacks have
        // run.
        unsafe {
            check(sys::TRITONSERVER_InferenceRequestSetReleaseCallback(
                request,
                Some(release),
                on_release.cast_mut().cast(),
            ))?;
            check(sys::TRITONSERVER_InferenceRequestSetResponseCallback(
                request,
                self.server.allocator,
                ptr::null_mut(),
                Some(respond),
                on_response.cast_mut().cast(),
            ))?;
            check(sys::TRITONSERVER_ServerInferAsync(
                self.server.server,
                request,
                ptr::null_mut(),
            ))
        }
    }
}

impl Drop for PreparedCall<'_> {
    fn drop(&mut self) {
        if self.sent {
            return;
        }
        let mut request = self.call.request();
        // SAFETY: the request was not sent, so nothing else uses or deletes it.
        unsafe { check_or_log(sys::TRITONSERVER_InferenceRequestDelete(request.0)) };
        request.0 = ptr::null_mut();
    }
}

impl InferenceCall {
    /// Ask the model to end the call. A last response still arrives.
    pub fn cancel(&self) {
        let request = self.request();
        if !request.0.is_null() {
            // SAFETY: the request is deleted only under the lock that is held here.
            unsafe { check_or_log(sys::TRITONSERVER_InferenceRequestCancel(request.0)) };
        }
    }

    fn request(&self) -> MutexGuard<'_, RequestPointer> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// # Safety
/// `request` is a request of Triton that was not sent, and `tensor` outlives it.
unsafe fn add_input(
    request: *mut sys::TRITONSERVER_InferenceRequest,
    tensor: &Tensor,
) -> Result<(), Error> {
    let name = c_string(&tensor.name);
    // SAFETY: as promised by the caller; Triton copies name and shape.
    unsafe {
        check(sys::TRITONSERVER_InferenceRequestAddInput(
            request,
            name.as_ptr(),
            tensor.kind as i32,
            tensor.shape.as_ptr(),
            tensor.shape.len() as u64,
        ))?;
        check(sys::TRITONSERVER_InferenceRequestAppendInputData(
            request,
            name.as_ptr(),
            tensor.data.as_ptr().cast(),
            tensor.data.len(),
            sys::TRITONSERVER_MEMORY_CPU,
            0,
        ))
    }
}

/// Delete a request, when Triton no longer uses it.
///
/// # Safety
/// Triton calls it once, with the reference that `PreparedCall::start` made for it.
unsafe extern "C" fn release(
    _: *mut sys::TRITONSERVER_InferenceRequest,
    _: u32,
    userp: *mut c_void,
) {
    let delete = || {
        // SAFETY: as promised by the caller.
        let call = unsafe { Arc::from_raw(userp.cast_const().cast::<InferenceCall>()) };
        let mut request = call.request();
        // SAFETY: Triton has returned the request, and nothing else deletes it.
        unsafe { check_or_log(sys::TRITONSERVER_InferenceRequestDelete(request.0)) };
        request.0 = ptr::null_mut();
    };
    catch_panic(|| (), delete);
}

/// Pass a response to the listener.
///
/// # Safety
/// Triton calls it with the reference that `PreparedCall::start` made for it. No call follows the
/// one with the final flag.
unsafe extern "C" fn respond(
    response: *mut sys::TRITONSERVER_InferenceResponse,
    flags: u32,
    userp: *mut c_void,
) {
    let is_final = flags & sys::TRITONSERVER_RESPONSE_COMPLETE_FINAL != 0;
    let deliver = || {
        let reference = userp.cast_const().cast::<InferenceCall>();
        // SAFETY: as promised by the caller; only the final call takes the reference back.
        let call = unsafe {
            if !is_final {
                Arc::increment_strong_count(reference);
            }
            Arc::from_raw(reference)
        };
        let outputs = (!response.is_null()).then(|| {
            let unreadable = || Err(Error::internal("its response could not be read"));
            // SAFETY: the response is ours until it is deleted, which happens once.
            unsafe {
                let outputs = catch_panic(unreadable, || read_outputs(response));
                check_or_log(sys::TRITONSERVER_InferenceResponseDelete(response));
                outputs
            }
        });
        (call.listener)(Response { outputs, is_final });
    };
    catch_panic(|| (), deliver);
}
