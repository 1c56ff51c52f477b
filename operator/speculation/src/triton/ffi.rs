//! The part of Triton's C interfaces for backends and for in-process inference that is used here.
//!
//! Facts about lifetimes are in Triton's own headers, `tritonserver.h` and `tritonbackend.h`. Both
//! interfaces promise to stay compatible within a major version.

use std::ffi::{c_char, c_int, c_void};

macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque! {
    Allocator Backend Factory InnerRequest InnerResponse Input Instance Message Metric
    MetricFamily Model Output Parameter Request Response Server Trace Error
}

pub type Failure = *mut Error;
pub type AllocFn = extern "C" fn(
    allocator: *mut Allocator,
    name: *const c_char,
    size: usize,
    kind: c_int,
    device: i64,
    user: *mut c_void,
    buffer: *mut *mut c_void,
    buffer_user: *mut *mut c_void,
    actual_kind: *mut c_int,
    actual_device: *mut i64,
) -> Failure;
pub type FreeFn = extern "C" fn(
    allocator: *mut Allocator,
    buffer: *mut c_void,
    buffer_user: *mut c_void,
    size: usize,
    kind: c_int,
    device: i64,
) -> Failure;
pub type ReleasedFn = extern "C" fn(request: *mut InnerRequest, flags: u32, user: *mut c_void);
pub type RespondedFn = extern "C" fn(response: *mut InnerResponse, flags: u32, user: *mut c_void);

pub const API_MAJOR: u32 = 1;
pub const CPU: c_int = 0;
pub const CPU_PINNED: c_int = 1;
pub const FINAL: u32 = 1;
pub const RELEASE_ALL: u32 = 1;
pub const COUNTER: c_int = 0;
pub const GAUGE: c_int = 1;
pub const STRING_PARAMETER: c_int = 0;
pub const LOG_WARN: c_int = 1;
pub const LOG_ERROR: c_int = 2;

/// Error codes of Triton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Internal = 1,
    InvalidArg = 3,
    Unavailable = 4,
    Unsupported = 5,
    Cancelled = 7,
}

unsafe extern "C" {
    pub fn TRITONBACKEND_ApiVersion(major: *mut u32, minor: *mut u32) -> Failure;
    pub fn TRITONBACKEND_ModelName(model: *mut Model, name: *mut *const c_char) -> Failure;
    pub fn TRITONBACKEND_ModelVersion(model: *mut Model, version: *mut u64) -> Failure;
    pub fn TRITONBACKEND_ModelRepository(
        model: *mut Model,
        kind: *mut c_int,
        location: *mut *const c_char,
    ) -> Failure;
    pub fn TRITONBACKEND_ModelConfig(
        model: *mut Model,
        version: u32,
        config: *mut *mut Message,
    ) -> Failure;
    pub fn TRITONBACKEND_ModelServer(model: *mut Model, server: *mut *mut Server) -> Failure;
    pub fn TRITONBACKEND_ModelState(model: *mut Model, state: *mut *mut c_void) -> Failure;
    pub fn TRITONBACKEND_ModelSetState(model: *mut Model, state: *mut c_void) -> Failure;
    pub fn TRITONBACKEND_ModelInstanceModel(
        instance: *mut Instance,
        model: *mut *mut Model,
    ) -> Failure;
    pub fn TRITONBACKEND_ModelInstanceReportStatistics(
        instance: *mut Instance,
        request: *mut Request,
        success: bool,
        exec_start_ns: u64,
        compute_start_ns: u64,
        compute_end_ns: u64,
        exec_end_ns: u64,
    ) -> Failure;
    pub fn TRITONBACKEND_ModelInstanceReportBatchStatistics(
        instance: *mut Instance,
        batch_size: u64,
        exec_start_ns: u64,
        compute_start_ns: u64,
        compute_end_ns: u64,
        exec_end_ns: u64,
    ) -> Failure;

    pub fn TRITONBACKEND_RequestInputCount(request: *mut Request, count: *mut u32) -> Failure;
    pub fn TRITONBACKEND_RequestInputByIndex(
        request: *mut Request,
        index: u32,
        input: *mut *mut Input,
    ) -> Failure;
    pub fn TRITONBACKEND_InputProperties(
        input: *mut Input,
        name: *mut *const c_char,
        kind: *mut c_int,
        shape: *mut *const i64,
        dims: *mut u32,
        size: *mut u64,
        buffers: *mut u32,
    ) -> Failure;
    pub fn TRITONBACKEND_InputBuffer(
        input: *mut Input,
        index: u32,
        buffer: *mut *const c_void,
        size: *mut u64,
        kind: *mut c_int,
        device: *mut i64,
    ) -> Failure;
    pub fn TRITONBACKEND_RequestOutputCount(request: *mut Request, count: *mut u32) -> Failure;
    pub fn TRITONBACKEND_RequestOutputName(
        request: *mut Request,
        index: u32,
        name: *mut *const c_char,
    ) -> Failure;
    pub fn TRITONBACKEND_RequestRelease(request: *mut Request, flags: u32) -> Failure;

    pub fn TRITONBACKEND_ResponseFactoryNew(
        factory: *mut *mut Factory,
        request: *mut Request,
    ) -> Failure;
    pub fn TRITONBACKEND_ResponseFactoryDelete(factory: *mut Factory) -> Failure;
    pub fn TRITONBACKEND_ResponseFactorySendFlags(factory: *mut Factory, flags: u32) -> Failure;
    pub fn TRITONBACKEND_ResponseFactoryIsCancelled(
        factory: *mut Factory,
        cancelled: *mut bool,
    ) -> Failure;
    pub fn TRITONBACKEND_ResponseNewFromFactory(
        response: *mut *mut Response,
        factory: *mut Factory,
    ) -> Failure;
    pub fn TRITONBACKEND_ResponseOutput(
        response: *mut Response,
        output: *mut *mut Output,
        name: *const c_char,
        kind: c_int,
        shape: *const i64,
        dims: u32,
    ) -> Failure;
    pub fn TRITONBACKEND_OutputBuffer(
        output: *mut Output,
        buffer: *mut *mut c_void,
        size: u64,
        kind: *mut c_int,
        device: *mut i64,
    ) -> Failure;
    pub fn TRITONBACKEND_ResponseSend(
        response: *mut Response,
        flags: u32,
        error: Failure,
    ) -> Failure;
    pub fn TRITONBACKEND_ResponseDelete(response: *mut Response) -> Failure;

    pub fn TRITONSERVER_ErrorNew(code: c_int, words: *const c_char) -> Failure;
    pub fn TRITONSERVER_ErrorDelete(error: Failure);
    pub fn TRITONSERVER_ErrorCode(error: Failure) -> c_int;
    pub fn TRITONSERVER_ErrorMessage(error: Failure) -> *const c_char;
    pub fn TRITONSERVER_LogMessage(
        level: c_int,
        file: *const c_char,
        line: c_int,
        words: *const c_char,
    ) -> Failure;
    pub fn TRITONSERVER_MessageSerializeToJson(
        message: *mut Message,
        base: *mut *const c_char,
        size: *mut usize,
    ) -> Failure;
    pub fn TRITONSERVER_MessageDelete(message: *mut Message) -> Failure;

    pub fn TRITONSERVER_ResponseAllocatorNew(
        allocator: *mut *mut Allocator,
        alloc: AllocFn,
        free: FreeFn,
        start: *const c_void,
    ) -> Failure;
    pub fn TRITONSERVER_ResponseAllocatorDelete(allocator: *mut Allocator) -> Failure;
    pub fn TRITONSERVER_InferenceRequestNew(
        request: *mut *mut InnerRequest,
        server: *mut Server,
        model: *const c_char,
        version: i64,
    ) -> Failure;
    pub fn TRITONSERVER_InferenceRequestDelete(request: *mut InnerRequest) -> Failure;
    pub fn TRITONSERVER_InferenceRequestAddInput(
        request: *mut InnerRequest,
        name: *const c_char,
        kind: c_int,
        shape: *const i64,
        dims: u64,
    ) -> Failure;
    pub fn TRITONSERVER_InferenceRequestAppendInputData(
        request: *mut InnerRequest,
        name: *const c_char,
        base: *const c_void,
        size: usize,
        kind: c_int,
        device: i64,
    ) -> Failure;
    pub fn TRITONSERVER_InferenceRequestAddRequestedOutput(
        request: *mut InnerRequest,
        name: *const c_char,
    ) -> Failure;
    pub fn TRITONSERVER_InferenceRequestSetReleaseCallback(
        request: *mut InnerRequest,
        released: ReleasedFn,
        user: *mut c_void,
    ) -> Failure;
    pub fn TRITONSERVER_InferenceRequestSetResponseCallback(
        request: *mut InnerRequest,
        allocator: *mut Allocator,
        allocator_user: *mut c_void,
        responded: RespondedFn,
        user: *mut c_void,
    ) -> Failure;
    pub fn TRITONSERVER_InferenceRequestCancel(request: *mut InnerRequest) -> Failure;
    pub fn TRITONSERVER_ServerInferAsync(
        server: *mut Server,
        request: *mut InnerRequest,
        trace: *mut Trace,
    ) -> Failure;
    pub fn TRITONSERVER_InferenceResponseError(response: *mut InnerResponse) -> Failure;
    pub fn TRITONSERVER_InferenceResponseOutputCount(
        response: *mut InnerResponse,
        count: *mut u32,
    ) -> Failure;
    pub fn TRITONSERVER_InferenceResponseOutput(
        response: *mut InnerResponse,
        index: u32,
        name: *mut *const c_char,
        kind: *mut c_int,
        shape: *mut *const i64,
        dims: *mut u64,
        base: *mut *const c_void,
        size: *mut usize,
        memory: *mut c_int,
        device: *mut i64,
        user: *mut *mut c_void,
    ) -> Failure;
    pub fn TRITONSERVER_InferenceResponseDelete(response: *mut InnerResponse) -> Failure;

    pub fn TRITONSERVER_ParameterNew(
        name: *const c_char,
        kind: c_int,
        value: *const c_void,
    ) -> *mut Parameter;
    pub fn TRITONSERVER_ParameterDelete(parameter: *mut Parameter);
    pub fn TRITONSERVER_MetricFamilyNew(
        family: *mut *mut MetricFamily,
        kind: c_int,
        name: *const c_char,
        description: *const c_char,
    ) -> Failure;
    pub fn TRITONSERVER_MetricFamilyDelete(family: *mut MetricFamily) -> Failure;
    pub fn TRITONSERVER_MetricNew(
        metric: *mut *mut Metric,
        family: *mut MetricFamily,
        labels: *const *const Parameter,
        count: u64,
    ) -> Failure;
    pub fn TRITONSERVER_MetricDelete(metric: *mut Metric) -> Failure;
    pub fn TRITONSERVER_MetricIncrement(metric: *mut Metric, value: f64) -> Failure;
    pub fn TRITONSERVER_MetricSet(metric: *mut Metric, value: f64) -> Failure;

    /// Of glibc, which Triton is built for: give free memory back to the system.
    pub fn malloc_trim(pad: usize) -> c_int;
}
