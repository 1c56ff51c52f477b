//! The library as Triton loads it, inside a SIMULATION of Triton's C interface: requests whose
//! tensors lie on a GPU, engines without room, memory that nobody has written.
#![allow(non_snake_case)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shipped::pair;
use triton_specdec as _;

#[allow(dead_code)]
mod shipped;

type Any = *mut c_void;

const CPU: c_int = 0;
const GPU: c_int = 2;
const INVALID_ARG: c_int = 3;
const UNAVAILABLE: c_int = 4;
const CANCELLED: c_int = 7;
const INT32: c_int = 8;
const BYTES: c_int = 13;
const STALL: Duration = Duration::from_secs(20);

// Types of the simulation, which it alone reads.
#[allow(improper_ctypes)]
unsafe extern "C" {
    fn TRITONBACKEND_ModelInitialize(model: Any) -> *mut Fault;
    fn TRITONBACKEND_ModelFinalize(model: Any) -> *mut Fault;
    fn TRITONBACKEND_ModelInstanceExecute(
        instance: Any,
        requests: *const *mut Request,
        count: u32,
    ) -> *mut Fault;
}

/// An error of Triton's.
#[repr(C)]
struct Fault {
    code: c_int,
    message: CString,
}

#[derive(Clone)]
#[repr(C)]
struct Input {
    name: CString,
    kind: c_int,
    shape: Vec<i64>,
    data: Vec<u8>,
    memory: c_int,
}

/// What a client reads: an error with its code, or nothing of interest here.
type Reply = Option<(c_int, String)>;

#[repr(C)]
struct Request {
    inputs: Vec<Input>,
    replies: Sender<Reply>,
    cancelled: bool,
}

static STATE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static ALLOCATE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static FREE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static RELEASED: AtomicUsize = AtomicUsize::new(0);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

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
extern "C" fn TRITONSERVER_ErrorDelete(error: *mut Fault) {
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

type Allocate = extern "C" fn(
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
type Free = extern "C" fn(Any, Any, Any, usize, c_int, i64) -> *mut Fault;

/// A loaded model, for one test at a time.
struct Model(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Model {
    fn load() -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the simulation answers all that it calls.
        let failed = unsafe { TRITONBACKEND_ModelInitialize(ptr::null_mut()) };
        assert!(failed.is_null());
        Self(turn)
    }

    /// What the client of a request reads first.
    fn reply(&self, inputs: Vec<Input>) -> Reply {
        self.replies(vec![inputs], false).remove(0)
    }

    /// The same of requests that come together.
    fn replies(&self, requests: Vec<Vec<Input>>, cancelled: bool) -> Vec<Reply> {
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

fn text(memory: c_int) -> Input {
    Input {
        name: c"text_input".into(),
        kind: BYTES,
        shape: vec![1, 1],
        data: b"\x02\0\0\0ab".to_vec(),
        memory,
    }
}

fn max_tokens() -> Input {
    Input {
        name: c"max_tokens".into(),
        kind: INT32,
        shape: vec![1, 1],
        data: vec![4, 0, 0, 0],
        memory: CPU,
    }
}

#[test]
fn tensors_in_memory_of_a_gpu_are_refused() {
    let reply = Model::load().reply(vec![text(GPU), max_tokens()]);
    let sentence = "text_input is in GPU memory, which tensorrt_llm_bls does not read or write: \
                    use system memory";
    assert_eq!(reply, Some((INVALID_ARG, sentence.to_owned())));
}

#[test]
fn an_engine_without_room_is_unavailable() {
    let reply = Model::load().reply(vec![text(CPU), max_tokens()]);
    let sentence = "tensorrt_llm: Exceeds maximum queue size: send the request again later";
    assert_eq!(reply, Some((UNAVAILABLE, sentence.to_owned())));
}

#[test]
fn requests_that_come_together_are_answered_each() {
    let request = |number: usize| match number % 3 {
        0 => vec![text(CPU), max_tokens()],
        1 => vec![text(GPU), max_tokens()],
        _ => vec![text(CPU)],
    };
    // More than wait, are read and are answered at a time.
    let replies = Model::load().replies((0..120).map(request).collect(), false);
    for (number, reply) in replies.into_iter().enumerate() {
        let (code, sentence) = reply.unwrap();
        let (expected, begin) = match number % 3 {
            0 => (UNAVAILABLE, "tensorrt_llm: Exceeds maximum queue size"),
            1 => (INVALID_ARG, "text_input is in GPU memory"),
            _ => (INVALID_ARG, "max_tokens is 0: set it to 1 or more"),
        };
        assert_eq!(code, expected);
        assert!(sentence.starts_with(begin), "{sentence}");
    }
}

#[test]
fn a_request_that_was_cancelled_while_it_waited_is_not_read() {
    // Reading it would give another error.
    let replies = Model::load().replies(vec![vec![text(GPU)]; 20], true);
    for reply in replies {
        assert_eq!(
            reply,
            Some((CANCELLED, "the request was cancelled".to_owned()))
        );
    }
}

#[test]
fn large_prompts_are_refused_where_the_request_arrives() {
    let mut large = text(CPU);
    // Only its size says so: nothing of it may be read.
    large.memory = GPU;
    large.data = vec![b'a'; 50 << 20];
    let (code, sentence) = Model::load().reply(vec![large, max_tokens()]).unwrap();
    assert_eq!(code, INVALID_ARG);
    assert!(
        sentence.starts_with("text_input has 52428796 bytes, more than the limit of 65536 "),
        "{sentence}"
    );
}

#[test]
fn room_for_an_engine_s_output_holds_nothing_from_before() {
    let model = Model::load();
    // SAFETY: the library registered these two for just that.
    let (allocate, free): (Allocate, Free) = unsafe {
        (
            std::mem::transmute::<Any, Allocate>(ALLOCATE.load(Ordering::SeqCst)),
            std::mem::transmute::<Any, Free>(FREE.load(Ordering::SeqCst)),
        )
    };
    for size in [1, 64, 1000, 50_000] {
        // Somebody else's text lies in the memory that is free.
        let others: Vec<Vec<u8>> = (0..20).map(|_| vec![b'x'; size]).collect();
        drop(others);
        let (mut base, mut user) = (ptr::null_mut(), ptr::null_mut());
        let (mut memory, mut device) = (GPU, 7);
        let failed = allocate(
            ptr::null_mut(),
            c"output_ids".as_ptr(),
            size,
            GPU,
            7,
            ptr::null_mut(),
            &mut base,
            &mut user,
            &mut memory,
            &mut device,
        );
        assert!(failed.is_null());
        assert_eq!((memory, device), (CPU, 0));
        // SAFETY: the library gave so many bytes.
        let room = unsafe { std::slice::from_raw_parts(base, size) };
        assert!(room.iter().all(|byte| *byte == 0), "{size}");
        free(ptr::null_mut(), base.cast(), user, size, CPU, 0);
    }
    drop(model);
}

#[test]
fn a_panic_never_reaches_the_server() {
    let model = Model::load();
    // More than any vector may have: the library's own code panics.
    let allocate = ALLOCATE.load(Ordering::SeqCst);
    // SAFETY: as above.
    let allocate = unsafe { std::mem::transmute::<Any, Allocate>(allocate) };
    let (mut base, mut user) = (ptr::null_mut(), ptr::null_mut());
    let (mut memory, mut device) = (0, 0);
    let failed = allocate(
        ptr::null_mut(),
        c"output_ids".as_ptr(),
        usize::MAX,
        CPU,
        0,
        ptr::null_mut(),
        &mut base,
        &mut user,
        &mut memory,
        &mut device,
    );
    // SAFETY: an error of the simulation.
    let message = unsafe { (*failed).message.to_string_lossy().into_owned() };
    assert!(message.starts_with("tensorrt_llm_bls failed on this request"));
    TRITONSERVER_ErrorDelete(failed);
    drop(model);
}

#[test]
fn a_thread_that_cannot_start_fails_the_load() {
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "loads_without_threads", "--ignored"])
        .args(["--test-threads=1", "--nocapture"])
        // No thread gets a stack of that size.
        .env("RUST_MIN_STACK", (1_u64 << 46).to_string())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success() && told.contains("1 passed"), "{told}");
}

#[test]
#[ignore = "runs in a process that can start no thread"]
fn loads_without_threads() {
    // SAFETY: the simulation answers all that it calls.
    let failed = unsafe { TRITONBACKEND_ModelInitialize(ptr::null_mut()) };
    assert!(!failed.is_null(), "it was loaded");
    // SAFETY: an error of the simulation.
    let message = unsafe { (*failed).message.to_string_lossy().into_owned() };
    assert!(
        message.starts_with("tensorrt_llm_bls cannot start a thread ("),
        "{message}"
    );
    TRITONSERVER_ErrorDelete(failed);
}
