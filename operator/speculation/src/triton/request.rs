//! A client's request: its tensors, and the way its responses go.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::ptr;

use super::error::{INTERNAL, c_text, check, failure, log, logged};
use super::ffi::{self, Code};
use super::given::Given;
use super::memory::{dimensions, on_cpu};
use crate::tensor::Tensor;

/// Nanoseconds of the clock that Triton's statistics go by.
pub fn now_ns() -> u64 {
    #[repr(C)]
    struct Time {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Time) -> i32;
    }
    const MONOTONIC: i32 = 1;
    let mut time = Time {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: the place for the answer is ours; this clock always exists on Linux.
    unsafe { clock_gettime(MONOTONIC, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

/// A request that Triton handed over, from its first look to its release.
pub struct ClientRequest {
    instance: *mut ffi::Instance,
    request: *mut ffi::Request,
    factory: *mut ffi::Factory,
    begun_ns: u64,
    released: bool,
}

// SAFETY: Triton lets any thread answer a request; who uses one takes turns by a lock.
unsafe impl Send for ClientRequest {}
unsafe impl Sync for ClientRequest {}

impl ClientRequest {
    /// Take a request over.
    pub fn new(instance: *mut ffi::Instance, request: *mut ffi::Request) -> Result<Self, String> {
        let mut factory = ptr::null_mut();
        // SAFETY: the request is Triton's and was not released.
        check(unsafe { ffi::TRITONBACKEND_ResponseFactoryNew(&mut factory, request) })?;
        Ok(Self {
            instance,
            request,
            factory,
            begun_ns: now_ns(),
            released: false,
        })
    }

    /// Name, shape and bytes of every tensor, without its data.
    pub fn sizes(&self) -> Result<Vec<(String, Vec<i64>, usize)>, String> {
        self.each(|input| Ok((input.name.clone(), input.shape.clone(), input.size)))
    }

    /// All tensors, copied.
    pub fn tensors(&self) -> Result<Vec<Tensor>, String> {
        self.each(Given::tensor)
    }

    fn each<T>(&self, read: impl Fn(&Given) -> Result<T, String>) -> Result<Vec<T>, String> {
        let mut count = 0;
        // SAFETY: the request is ours until it is released.
        check(unsafe { ffi::TRITONBACKEND_RequestInputCount(self.request, &mut count) })?;
        (0..count).map(|index| read(&self.input(index)?)).collect()
    }

    fn input(&self, index: u32) -> Result<Given, String> {
        let mut input = ptr::null_mut();
        let (mut name, mut kind) = (ptr::null(), 0);
        let (mut shape, mut dims) = (ptr::null(), 0);
        let (mut size, mut buffers) = (0, 0);
        // SAFETY: what Triton points to lives as long as the request.
        unsafe {
            check(ffi::TRITONBACKEND_RequestInputByIndex(
                self.request,
                index,
                &mut input,
            ))?;
            check(ffi::TRITONBACKEND_InputProperties(
                input,
                &mut name,
                &mut kind,
                &mut shape,
                &mut dims,
                &mut size,
                &mut buffers,
            ))?;
            Ok(Given {
                input,
                name: CStr::from_ptr(name).to_string_lossy().into_owned(),
                kind,
                shape: dimensions(shape, dims as usize),
                size: size as usize,
                buffers,
            })
        }
    }

    /// Names of the outputs that the client asked for, all where it did not say.
    pub fn requested(&self) -> Result<BTreeSet<String>, String> {
        let mut count = 0;
        // SAFETY: names live as long as the request.
        unsafe {
            check(ffi::TRITONBACKEND_RequestOutputCount(
                self.request,
                &mut count,
            ))?;
            (0..count)
                .map(|index| {
                    let mut name: *const c_char = ptr::null();
                    check(ffi::TRITONBACKEND_RequestOutputName(
                        self.request,
                        index,
                        &mut name,
                    ))?;
                    Ok(CStr::from_ptr(name).to_string_lossy().into_owned())
                })
                .collect()
        }
    }

    /// Whether the client has gone away.
    pub fn cancelled(&self) -> bool {
        let mut cancelled = false;
        // SAFETY: the factory is ours until it is dropped.
        logged(unsafe {
            ffi::TRITONBACKEND_ResponseFactoryIsCancelled(self.factory, &mut cancelled)
        });
        cancelled
    }

    /// Send outputs; the last ones with `last`.
    pub fn send(&self, tensors: &[Tensor], last: bool) -> Result<(), String> {
        let response = self.response()?;
        for tensor in tensors {
            if let Err(words) = add(response, tensor) {
                // SAFETY: it was not sent.
                logged(unsafe { ffi::TRITONBACKEND_ResponseDelete(response) });
                return Err(words);
            }
        }
        let flags = if last { ffi::FINAL } else { 0 };
        // SAFETY: sending takes the response over.
        check(unsafe { ffi::TRITONBACKEND_ResponseSend(response, flags, ptr::null_mut()) })
    }

    /// Send an error.
    pub fn refuse(&self, code: Code, words: &str, last: bool) -> Result<(), String> {
        let response = self.response()?;
        let error = failure(code, words);
        let flags = if last { ffi::FINAL } else { 0 };
        // SAFETY: sending takes the response over, but not the error.
        unsafe {
            let sent = check(ffi::TRITONBACKEND_ResponseSend(response, flags, error));
            ffi::TRITONSERVER_ErrorDelete(error);
            sent
        }
    }

    /// Say that nothing follows.
    pub fn end(&self) -> Result<(), String> {
        // SAFETY: the factory is ours.
        check(unsafe { ffi::TRITONBACKEND_ResponseFactorySendFlags(self.factory, ffi::FINAL) })
    }

    /// Count it in the server's statistics and let go of it.
    pub fn release(mut self, success: bool) {
        self.let_go(success);
    }

    fn let_go(&mut self, success: bool) {
        self.released = true;
        let (begun, ended) = (self.begun_ns, now_ns());
        // SAFETY: the request is ours, and is released once.
        unsafe {
            logged(ffi::TRITONBACKEND_ModelInstanceReportStatistics(
                self.instance,
                self.request,
                success,
                begun,
                begun,
                ended,
                ended,
            ));
            logged(ffi::TRITONBACKEND_ModelInstanceReportBatchStatistics(
                self.instance,
                1,
                begun,
                begun,
                ended,
                ended,
            ));
            logged(ffi::TRITONBACKEND_RequestRelease(
                self.request,
                ffi::RELEASE_ALL,
            ));
        }
    }

    fn response(&self) -> Result<*mut ffi::Response, String> {
        let mut response = ptr::null_mut();
        // SAFETY: the factory is ours.
        check(unsafe { ffi::TRITONBACKEND_ResponseNewFromFactory(&mut response, self.factory) })?;
        Ok(response)
    }
}

impl Drop for ClientRequest {
    fn drop(&mut self) {
        if !self.released {
            // Whoever had it failed: its client must not wait for ever.
            if let Err(words) = self.refuse(Code::Internal, INTERNAL, true) {
                log(ffi::LOG_ERROR, &words);
            }
            self.let_go(false);
        }
        // SAFETY: nobody uses the factory any more.
        logged(unsafe { ffi::TRITONBACKEND_ResponseFactoryDelete(self.factory) });
    }
}

fn add(response: *mut ffi::Response, tensor: &Tensor) -> Result<(), String> {
    let name = c_text(&tensor.name);
    let (mut output, mut base) = (ptr::null_mut(), ptr::null_mut());
    let (mut memory, mut device) = (ffi::CPU, 0);
    // SAFETY: name and shape are copied; the buffer has the size that was asked for.
    unsafe {
        check(ffi::TRITONBACKEND_ResponseOutput(
            response,
            &mut output,
            name.as_ptr(),
            tensor.kind as i32,
            tensor.shape.as_ptr(),
            tensor.shape.len() as u32,
        ))?;
        check(ffi::TRITONBACKEND_OutputBuffer(
            output,
            &mut base,
            tensor.data.len() as u64,
            &mut memory,
            &mut device,
        ))?;
        on_cpu(&tensor.name, memory)?;
        if !tensor.data.is_empty() {
            ptr::copy_nonoverlapping(tensor.data.as_ptr(), base.cast::<u8>(), tensor.data.len());
        }
    }
    Ok(())
}
