//! A client's request: reads its tensors and sends its responses.

use std::collections::BTreeSet;
use std::ptr;

use triton_sys as sys;

use crate::clock::monotonic_ns;
use crate::error::{Error, c_string, check, check_or_log};
use crate::input::{Input, InputSize};
use crate::log::{Level, log};
use crate::memory::{copy_text, require_cpu};
use crate::tensor::Tensor;

/// A request that this backend owns until it is released.
///
/// Dropping a request that was not released sends its client an error.
pub struct Request {
    model: &'static str,
    instance: *mut sys::TRITONBACKEND_ModelInstance,
    request: *mut sys::TRITONBACKEND_Request,
    factory: *mut sys::TRITONBACKEND_ResponseFactory,
    started_ns: u64,
    released: bool,
}

// SAFETY: Triton allows any thread to answer a request, and one thread at a time owns this value.
unsafe impl Send for Request {}

impl Request {
    /// Take a request over. Where that fails, the request is released.
    ///
    /// # Safety
    /// Triton has just handed the request to this instance.
    pub(crate) unsafe fn new(
        model: &'static str,
        instance: *mut sys::TRITONBACKEND_ModelInstance,
        request: *mut sys::TRITONBACKEND_Request,
    ) -> Result<Self, Error> {
        let mut factory = ptr::null_mut();
        // SAFETY: as promised by the caller; without a factory nothing else releases the request.
        unsafe {
            let made = check(sys::TRITONBACKEND_ResponseFactoryNew(&mut factory, request));
            if let Err(error) = made {
                check_or_log(sys::TRITONBACKEND_RequestRelease(
                    request,
                    sys::TRITONSERVER_REQUEST_RELEASE_ALL,
                ));
                return Err(error);
            }
        }
        Ok(Self {
            model,
            instance,
            request,
            factory,
            started_ns: monotonic_ns(),
            released: false,
        })
    }

    /// Name, shape and bytes of every input, without its data.
    ///
    /// # Errors
    /// Triton does not return them.
    pub fn input_sizes(&self) -> Result<Vec<InputSize>, Error> {
        self.inputs(|input| Ok(input.size))
    }

    /// The id that the client gave the request; empty without one.
    ///
    /// # Errors
    /// Triton does not return it.
    pub fn id(&self) -> Result<String, Error> {
        let mut id = ptr::null();
        // SAFETY: the text lives as long as the request, which is ours until it is released.
        unsafe {
            check(sys::TRITONBACKEND_RequestId(self.request, &mut id))?;
            Ok(copy_text(id))
        }
    }

    /// Copies of all inputs.
    ///
    /// # Errors
    /// An input has an unknown type, or is in the memory of a GPU.
    pub fn tensors(&self) -> Result<Vec<Tensor>, Error> {
        // SAFETY: the inputs are those of this request, which was not released.
        self.inputs(|input| unsafe { input.read() })
    }

    fn inputs<T>(&self, read: impl Fn(Input) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let mut count = 0;
        // SAFETY: the request is ours until it is released.
        unsafe {
            check(sys::TRITONBACKEND_RequestInputCount(
                self.request,
                &mut count,
            ))?
        };
        (0..count)
            .map(|index| {
                // SAFETY: as above.
                read(unsafe { Input::of(self.request, index) }?)
            })
            .collect()
    }

    /// Names of the outputs that the client asked for; all outputs where it named none.
    ///
    /// # Errors
    /// Triton does not return them.
    pub fn requested_outputs(&self) -> Result<BTreeSet<String>, Error> {
        let mut count = 0;
        // SAFETY: the names live as long as the request.
        unsafe {
            check(sys::TRITONBACKEND_RequestOutputCount(
                self.request,
                &mut count,
            ))?;
            (0..count)
                .map(|index| {
                    let mut name = ptr::null();
                    check(sys::TRITONBACKEND_RequestOutputName(
                        self.request,
                        index,
                        &mut name,
                    ))?;
                    Ok(copy_text(name))
                })
                .collect()
        }
    }

    /// Whether the client has cancelled the request or disconnected.
    pub fn is_cancelled(&self) -> bool {
        let mut cancelled = false;
        // SAFETY: the factory is ours until it is dropped.
        unsafe {
            check_or_log(sys::TRITONBACKEND_ResponseFactoryIsCancelled(
                self.factory,
                &mut cancelled,
            ));
        }
        cancelled
    }

    /// Send a response; with `is_final`, it is the last one.
    ///
    /// # Errors
    /// Triton rejects it, such as when the client has disconnected.
    pub fn send(&self, tensors: &[Tensor], is_final: bool) -> Result<(), Error> {
        let response = self.new_response()?;
        // SAFETY: the response is new; it is either deleted or sent, which takes it over.
        unsafe {
            for tensor in tensors {
                if let Err(error) = add_output(response, tensor) {
                    check_or_log(sys::TRITONBACKEND_ResponseDelete(response));
                    // Without any response, the client would wait forever.
                    self.send_error(&error, is_final)?;
                    return Err(error);
                }
            }
            check(sys::TRITONBACKEND_ResponseSend(
                response,
                flags(is_final),
                ptr::null_mut(),
            ))
        }
    }

    /// Send an error; with `is_final`, it is the last response.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub fn send_error(&self, error: &Error, is_final: bool) -> Result<(), Error> {
        let response = self.new_response()?;
        let error = error.clone().into_raw();
        // SAFETY: sending takes over the response, but not the error.
        unsafe {
            let sent = check(sys::TRITONBACKEND_ResponseSend(
                response,
                flags(is_final),
                error,
            ));
            sys::TRITONSERVER_ErrorDelete(error);
            sent
        }
    }

    /// Report to Triton that no further response follows.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub fn send_end(&self) -> Result<(), Error> {
        // SAFETY: the factory is ours.
        unsafe {
            check(sys::TRITONBACKEND_ResponseFactorySendFlags(
                self.factory,
                flags(true),
            ))
        }
    }

    /// Count the request in the server's statistics and return it to Triton.
    pub fn release(mut self, success: bool) {
        self.report_and_release(success);
    }

    fn report_and_release(&mut self, success: bool) {
        self.released = true;
        let (started, ended) = (self.started_ns, monotonic_ns());
        // SAFETY: the request is ours, and is released once.
        unsafe {
            check_or_log(sys::TRITONBACKEND_ModelInstanceReportStatistics(
                self.instance,
                self.request,
                success,
                started,
                started,
                ended,
                ended,
            ));
            check_or_log(sys::TRITONBACKEND_ModelInstanceReportBatchStatistics(
                self.instance,
                1,
                started,
                started,
                ended,
                ended,
            ));
            check_or_log(sys::TRITONBACKEND_RequestRelease(
                self.request,
                sys::TRITONSERVER_REQUEST_RELEASE_ALL,
            ));
        }
    }

    fn new_response(&self) -> Result<*mut sys::TRITONBACKEND_Response, Error> {
        let mut response = ptr::null_mut();
        // SAFETY: the factory is ours.
        unsafe {
            check(sys::TRITONBACKEND_ResponseNewFromFactory(
                &mut response,
                self.factory,
            ))?;
        }
        Ok(response)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.released {
            // The code that owned it panicked. Without a response, the client would wait forever.
            let message = format!(
                "{} failed on this request: the server's log has the details",
                self.model
            );
            if let Err(error) = self.send_error(&Error::internal(message), true) {
                log(Level::Error, &error.message);
            }
            self.report_and_release(false);
        }
        // SAFETY: nothing else uses the factory.
        unsafe { check_or_log(sys::TRITONBACKEND_ResponseFactoryDelete(self.factory)) };
    }
}

/// # Safety
/// `response` is a response of Triton that was not sent.
unsafe fn add_output(
    response: *mut sys::TRITONBACKEND_Response,
    tensor: &Tensor,
) -> Result<(), Error> {
    let name = c_string(&tensor.name);
    let (mut output, mut base) = (ptr::null_mut(), ptr::null_mut());
    let (mut memory_type, mut memory_type_id) = (sys::TRITONSERVER_MEMORY_CPU, 0);
    // SAFETY: as promised by the caller. Triton copies name and shape, and the buffer has the
    // size that was asked for.
    unsafe {
        check(sys::TRITONBACKEND_ResponseOutput(
            response,
            &mut output,
            name.as_ptr(),
            tensor.kind as i32,
            tensor.shape.as_ptr(),
            tensor.shape.len() as u32,
        ))?;
        check(sys::TRITONBACKEND_OutputBuffer(
            output,
            &mut base,
            tensor.data.len() as u64,
            &mut memory_type,
            &mut memory_type_id,
        ))?;
        require_cpu(&tensor.name, memory_type)?;
        if !tensor.data.is_empty() {
            ptr::copy_nonoverlapping(tensor.data.as_ptr(), base.cast::<u8>(), tensor.data.len());
        }
    }
    Ok(())
}

fn flags(is_final: bool) -> u32 {
    if is_final {
        sys::TRITONSERVER_RESPONSE_COMPLETE_FINAL
    } else {
        0
    }
}
