//! SIMULATION of Triton's C interface, as far as the library calls it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use triton_specdec as _;

use crate::shipped::pair;

pub type Any = *mut c_void;

pub const CPU: c_int = 0;
pub const GPU: c_int = 2;
pub const INVALID_ARG: c_int = 3;
pub const UNAVAILABLE: c_int = 4;
pub const CANCELLED: c_int = 7;
pub const INT32: c_int = 8;
pub const BYTES: c_int = 13;

// Types of the simulation, which it alone reads.
#[allow(improper_ctypes)]
unsafe extern "C" {
    pub fn TRITONBACKEND_ModelInitialize(model: Any) -> *mut Fault;
    pub fn TRITONBACKEND_ModelFinalize(model: Any) -> *mut Fault;
    pub fn TRITONBACKEND_ModelInstanceExecute(
        instance: Any,
        requests: *const *mut Request,
        count: u32,
    ) -> *mut Fault;
}

/// An error of Triton's.
#[repr(C)]
pub struct Fault {
    pub code: c_int,
    pub message: CString,
}

#[derive(Clone)]
#[repr(C)]
pub struct Input {
    pub name: CString,
    pub kind: c_int,
    pub shape: Vec<i64>,
    pub data: Vec<u8>,
    pub memory: c_int,
}

/// What a client reads: an error with its code, or nothing of interest here.
pub type Reply = Option<(c_int, String)>;

#[repr(C)]
pub struct Request {
    pub inputs: Vec<Input>,
    pub replies: Sender<Reply>,
    pub cancelled: bool,
}

static STATE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
pub static ALLOCATE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
pub static FREE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
pub static RELEASED: AtomicUsize = AtomicUsize::new(0);

fn fault(code: c_int, message: &str) -> *mut Fault {
    let message = CString::new(message).unwrap();
    Box::into_raw(Box::new(Fault { code, message }))
}

macro_rules! nothing_to_do {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> Any {
            ptr::null_mut()
        }
    )*};
}

nothing_to_do! {
    TRITONBACKEND_ModelVersion TRITONBACKEND_ModelServer TRITONBACKEND_ModelInstanceModel
    TRITONBACKEND_ModelInstanceReportStatistics TRITONBACKEND_ModelInstanceReportBatchStatistics
    TRITONBACKEND_RequestOutputName TRITONBACKEND_ResponseFactoryDelete
    TRITONBACKEND_ResponseFactorySendFlags
    TRITONBACKEND_ResponseOutput TRITONBACKEND_OutputBuffer TRITONBACKEND_ResponseDelete
    TRITONSERVER_LogMessage TRITONSERVER_MessageDelete TRITONSERVER_ResponseAllocatorDelete
    TRITONSERVER_InferenceRequestNew TRITONSERVER_InferenceRequestDelete
    TRITONSERVER_InferenceRequestAddInput TRITONSERVER_InferenceRequestAppendInputData
    TRITONSERVER_InferenceRequestAddRequestedOutput TRITONSERVER_InferenceRequestCancel
    TRITONSERVER_InferenceRequestSetReleaseCallback
    TRITONSERVER_InferenceRequestSetResponseCallback TRITONSERVER_InferenceResponseError
    TRITONSERVER_InferenceResponseOutputCount TRITONSERVER_InferenceResponseOutput
    TRITONSERVER_InferenceResponseDelete TRITONSERVER_ParameterNew TRITONSERVER_ParameterDelete
    TRITONSERVER_MetricFamilyNew TRITONSERVER_MetricFamilyDelete TRITONSERVER_MetricNew
    TRITONSERVER_MetricDelete TRITONSERVER_MetricIncrement TRITONSERVER_MetricSet
}

#[unsafe(no_mangle)]
extern "C" fn TRITONSERVER_ErrorNew(code: c_int, message: *const c_char) -> *mut Fault {
    // SAFETY: the library hands over a text.
    fault(code, &unsafe { CStr::from_ptr(message) }.to_string_lossy())
}

#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_ErrorDelete(error: *mut Fault) {
    // SAFETY: it was made by `fault` and is deleted once.
    drop(unsafe { Box::from_raw(error) });
}

#[unsafe(no_mangle)]
extern "C" fn TRITONSERVER_ErrorCode(error: *mut Fault) -> c_int {
    // SAFETY: it was made by `fault`.
    unsafe { (*error).code }
}

#[unsafe(no_mangle)]
extern "C" fn TRITONSERVER_ErrorMessage(error: *mut Fault) -> *const c_char {
    // SAFETY: it was made by `fault`.
    unsafe { (*error).message.as_ptr() }
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_ApiVersion(major: *mut u32, _: *mut u32) -> Any {
    // SAFETY: the place is the library's, as are all others below.
    unsafe { *major = 1 };
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_ModelName(_: Any, name: *mut *const c_char) -> Any {
    unsafe { *name = c"tensorrt_llm_bls".as_ptr() };
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_ModelRepository(_: Any, _: Any, place: *mut *const c_char) -> Any {
    unsafe { *place = c"/nowhere".as_ptr() };
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_ModelConfig(_: Any, _: u32, _: *mut Any) -> Any {
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONSERVER_MessageSerializeToJson(
    _: Any,
    base: *mut *const c_char,
    size: *mut usize,
) -> Any {
    let config = serde_json::json!({
        "max_batch_size": 4,
        "model_transaction_policy": {"decoupled": true},
        "parameters": {
            "tokenizer_dir": {"string_value": pair()},
            "max_seq_len": {"string_value": "512"},
        },
        "output": [{"name": "text_output"}],
    });
    let text = config.to_string().leak();
    unsafe { (*base, *size) = (text.as_ptr().cast(), text.len()) };
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_ModelState(_: Any, state: *mut Any) -> Any {
    unsafe { *state = STATE.load(Ordering::SeqCst) };
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_ModelSetState(_: Any, state: Any) -> Any {
    STATE.store(state, Ordering::SeqCst);
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_RequestInputCount(request: *mut Request, count: *mut u32) -> Any {
    unsafe { *count = (*request).inputs.len() as u32 };
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_RequestInputByIndex(
    request: *mut Request,
    index: u32,
    input: *mut *const Input,
) -> Any {
    unsafe { *input = &(&(*request).inputs)[index as usize] };
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_InputProperties(
    input: *const Input,
    name: *mut *const c_char,
    kind: *mut c_int,
    shape: *mut *const i64,
    dims: *mut u32,
    size: *mut u64,
    buffers: *mut u32,
) -> Any {
    unsafe {
        let input = &*input;
        (*name, *kind) = (input.name.as_ptr(), input.kind);
        (*shape, *dims) = (input.shape.as_ptr(), input.shape.len() as u32);
        (*size, *buffers) = (input.data.len() as u64, 1);
    }
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_InputBuffer(
    input: *const Input,
    _: u32,
    base: *mut *const c_void,
    size: *mut u64,
    memory: *mut c_int,
    _: *mut i64,
) -> Any {
    unsafe {
        let input = &*input;
        // What a GPU's address is to the processor.
        let invalid = ptr::without_provenance(16);
        *base = match input.memory {
            CPU => input.data.as_ptr().cast(),
            _ => invalid,
        };
        (*size, *memory) = (input.data.len() as u64, input.memory);
    }
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_RequestOutputCount(_: *mut Request, count: *mut u32) -> Any {
    unsafe { *count = 0 };
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_RequestRelease(_: *mut Request, _: u32) -> Any {
    RELEASED.fetch_add(1, Ordering::SeqCst);
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_ResponseFactoryNew(
    factory: *mut *mut Request,
    request: *mut Request,
) -> Any {
    unsafe { *factory = request };
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_ResponseFactoryIsCancelled(
    factory: *mut Request,
    cancelled: *mut bool,
) -> Any {
    unsafe { *cancelled = (*factory).cancelled };
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_ResponseNewFromFactory(
    response: *mut *mut Request,
    factory: *mut Request,
) -> Any {
    unsafe { *response = factory };
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_ResponseSend(response: *mut Request, _: u32, error: *mut Fault) -> Any {
    unsafe {
        let reply = error.as_ref().map(|error| {
            let message = error.message.to_string_lossy().into_owned();
            (error.code, message)
        });
        let _ = (*response).replies.send(reply);
    }
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONSERVER_ResponseAllocatorNew(_: *mut Any, alloc: Any, free: Any, _: Any) -> Any {
    ALLOCATE.store(alloc, Ordering::SeqCst);
    FREE.store(free, Ordering::SeqCst);
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn TRITONSERVER_ServerInferAsync(_: Any, _: Any, _: Any) -> *mut Fault {
    fault(UNAVAILABLE, "Exceeds maximum queue size")
}
