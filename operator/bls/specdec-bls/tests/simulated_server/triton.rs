//! A simulation of the server that loads the library: the functions of Triton that the library
//! calls.
//!
//! [`Simulation`] has a method for each function of `triton-sys`, with the declared types. A method
//! that is not overridden below does nothing and returns null. Inference calls go to the engine in
//! the module `engine`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

pub use triton_sys::*;

use crate::engine::{self, Call, ENGINE};
use crate::shipped::pair;

/// An error, which the library only sees as a pointer.
struct Failure {
    code: c_int,
    message: CString,
}

/// An input of a request.
#[derive(Clone)]
pub struct Input {
    pub name: CString,
    pub kind: c_int,
    pub shape: Vec<i64>,
    pub data: Vec<u8>,
    pub memory: c_int,
}

/// A response: the code and the message of an error, or None for outputs, which
/// [`ClientRequest::outputs`] keeps.
pub type Reply = Option<(c_int, String)>;

/// A client's request, which is also its own response factory and its responses.
pub struct ClientRequest {
    pub id: CString,
    pub inputs: Vec<Input>,
    pub replies: Sender<Reply>,
    pub cancelled: bool,
    /// The memory that the client reads outputs from.
    pub output_memory: c_int,
    /// The outputs, in the order in which they were made.
    pub outputs: Mutex<Vec<Vec<u8>>>,
}

/// The functions of the allocator that the library registered.
pub struct Allocator {
    pub allocate: TRITONSERVER_ResponseAllocatorAllocFn_t,
    pub free: TRITONSERVER_ResponseAllocatorReleaseFn_t,
    pub query: TRITONSERVER_ResponseAllocatorQueryFn_t,
}

/// An address that the processor cannot use, as it cannot use that of a GPU.
pub const GPU_ADDRESS: *const c_void = ptr::without_provenance(16);

static STATE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
pub static ALLOCATOR: Mutex<Allocator> = Mutex::new(Allocator {
    allocate: None,
    free: None,
    query: None,
});
/// Whether the model may stream, read when it is loaded.
pub static DECOUPLED: AtomicBool = AtomicBool::new(true);
/// Least tokens of a match of lookups, 0 for none, read when the model is loaded.
pub static LOOKUP: AtomicUsize = AtomicUsize::new(0);
pub static RELEASED: AtomicUsize = AtomicUsize::new(0);

fn failure(code: c_int, message: &str) -> *mut TRITONSERVER_Error {
    let message = CString::new(message).unwrap();
    Box::into_raw(Box::new(Failure { code, message })).cast()
}

/// Code and message of an error, which is deleted.
pub fn take(error: *mut TRITONSERVER_Error) -> Reply {
    if error.is_null() {
        return None;
    }
    // SAFETY: `failure` made it, and the caller has the only pointer to it.
    let failure = unsafe { Box::from_raw(error.cast::<Failure>()) };
    Some((failure.code, failure.message.to_string_lossy().into_owned()))
}

macro_rules! simulated {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions of Triton.
        #[allow(clippy::too_many_arguments)]
        trait Simulation {$(
            #[allow(unused_variables)]
            unsafe fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: every result is a pointer or a number, for which zero is a value.
                unsafe { std::mem::zeroed() }
            }
        )*}
        $(
            #[allow(clippy::too_many_arguments)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: as promised by the library that calls it.
                unsafe { <Server as Simulation>::$name($($argument),*) }
            }
        )*
    };
}

for_each_function!(simulated);

struct Server;

// SAFETY of all blocks below: the library passes places for results of the declared types, and
// requests and inputs that `Model` has made, which live to the end of the process.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simulation for Server {
    unsafe fn TRITONSERVER_ErrorNew(
        code: c_int,
        message: *const c_char,
    ) -> *mut TRITONSERVER_Error {
        failure(code, &unsafe { CStr::from_ptr(message) }.to_string_lossy())
    }

    unsafe fn TRITONSERVER_ErrorDelete(error: *mut TRITONSERVER_Error) {
        take(error);
    }

    unsafe fn TRITONSERVER_ErrorCode(error: *mut TRITONSERVER_Error) -> c_int {
        unsafe { &*error.cast::<Failure>() }.code
    }

    unsafe fn TRITONSERVER_ErrorMessage(error: *mut TRITONSERVER_Error) -> *const c_char {
        unsafe { &*error.cast::<Failure>() }.message.as_ptr()
    }

    unsafe fn TRITONBACKEND_ApiVersion(major: *mut u32, _: *mut u32) -> *mut TRITONSERVER_Error {
        unsafe { *major = 1 };
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_ModelName(
        _: *mut TRITONBACKEND_Model,
        name: *mut *const c_char,
    ) -> *mut TRITONSERVER_Error {
        unsafe { *name = c"tensorrt_llm_bls".as_ptr() };
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_ModelRepository(
        _: *mut TRITONBACKEND_Model,
        _: *mut TRITONBACKEND_ArtifactType,
        location: *mut *const c_char,
    ) -> *mut TRITONSERVER_Error {
        unsafe { *location = c"/nowhere".as_ptr() };
        ptr::null_mut()
    }

    unsafe fn TRITONSERVER_MessageSerializeToJson(
        _: *mut TRITONSERVER_Message,
        base: *mut *const c_char,
        size: *mut usize,
    ) -> *mut TRITONSERVER_Error {
        let config = serde_json::json!({
            "max_batch_size": 4,
            "model_transaction_policy": {"decoupled": DECOUPLED.load(Ordering::SeqCst)},
            "parameters": {
                "tokenizer_dir": {"string_value": pair()},
                "max_seq_len": {"string_value": "512"},
                "num_draft_tokens": {"string_value": "4"},
                "max_draft_tokens": {"string_value": "4"},
                "lookup_min_match": {"string_value": LOOKUP.load(Ordering::SeqCst).to_string()},
            },
            "output": [{"name": "text_output"}],
        });
        let text = config.to_string().leak();
        unsafe { (*base, *size) = (text.as_ptr().cast(), text.len()) };
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_ModelState(
        _: *mut TRITONBACKEND_Model,
        state: *mut *mut c_void,
    ) -> *mut TRITONSERVER_Error {
        unsafe { *state = STATE.load(Ordering::SeqCst) };
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_ModelSetState(
        _: *mut TRITONBACKEND_Model,
        state: *mut c_void,
    ) -> *mut TRITONSERVER_Error {
        STATE.store(state, Ordering::SeqCst);
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_RequestId(
        request: *mut TRITONBACKEND_Request,
        id: *mut *const c_char,
    ) -> *mut TRITONSERVER_Error {
        unsafe { *id = (&*request.cast::<ClientRequest>()).id.as_ptr() };
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_RequestInputCount(
        request: *mut TRITONBACKEND_Request,
        count: *mut u32,
    ) -> *mut TRITONSERVER_Error {
        unsafe { *count = (&*request.cast::<ClientRequest>()).inputs.len() as u32 };
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_RequestInputByIndex(
        request: *mut TRITONBACKEND_Request,
        index: u32,
        input: *mut *mut TRITONBACKEND_Input,
    ) -> *mut TRITONSERVER_Error {
        unsafe {
            let request = &*request.cast::<ClientRequest>();
            *input = ptr::from_ref(&request.inputs[index as usize])
                .cast_mut()
                .cast();
        }
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_InputProperties(
        input: *mut TRITONBACKEND_Input,
        name: *mut *const c_char,
        kind: *mut c_int,
        shape: *mut *const i64,
        dimensions: *mut u32,
        size: *mut u64,
        buffers: *mut u32,
    ) -> *mut TRITONSERVER_Error {
        unsafe {
            let input = &*input.cast::<Input>();
            (*name, *kind) = (input.name.as_ptr(), input.kind);
            (*shape, *dimensions) = (input.shape.as_ptr(), input.shape.len() as u32);
            (*size, *buffers) = (input.data.len() as u64, 1);
        }
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_InputBuffer(
        input: *mut TRITONBACKEND_Input,
        _: u32,
        base: *mut *const c_void,
        size: *mut u64,
        memory: *mut c_int,
        _: *mut i64,
    ) -> *mut TRITONSERVER_Error {
        unsafe {
            let input = &*input.cast::<Input>();
            *base = match input.memory {
                TRITONSERVER_MEMORY_CPU => input.data.as_ptr().cast(),
                _ => GPU_ADDRESS,
            };
            (*size, *memory) = (input.data.len() as u64, input.memory);
        }
        ptr::null_mut()
    }

    response_functions!();

    call_functions!();

    metric_functions!();
}
