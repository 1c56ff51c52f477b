//! A simulation of the server that loads the library: the functions of Triton that it calls.
//!
//! [`Simulation`] has a method for each function of `triton-sys`, with the declared types. A method
//! that is not overridden below does nothing and returns null. The engine of this server has no
//! room for any call.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

pub use triton_sys::*;

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

/// A response: the code and the message of an error, or None for outputs, which no test compares.
pub type Reply = Option<(c_int, String)>;

/// A client's request, which is also its own response factory and its responses.
pub struct ClientRequest {
    pub inputs: Vec<Input>,
    pub replies: Sender<Reply>,
    pub cancelled: bool,
}

/// The functions of the allocator that the library registered.
pub type Allocator = (
    TRITONSERVER_ResponseAllocatorAllocFn_t,
    TRITONSERVER_ResponseAllocatorReleaseFn_t,
);

static STATE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
pub static ALLOCATOR: Mutex<Allocator> = Mutex::new((None, None));
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
        // The processor cannot read this address, as it cannot read that of a GPU.
        let invalid = ptr::without_provenance(16);
        unsafe {
            let input = &*input.cast::<Input>();
            *base = match input.memory {
                TRITONSERVER_MEMORY_CPU => input.data.as_ptr().cast(),
                _ => invalid,
            };
            (*size, *memory) = (input.data.len() as u64, input.memory);
        }
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_RequestOutputCount(
        _: *mut TRITONBACKEND_Request,
        count: *mut u32,
    ) -> *mut TRITONSERVER_Error {
        unsafe { *count = 0 };
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_RequestRelease(
        _: *mut TRITONBACKEND_Request,
        _: u32,
    ) -> *mut TRITONSERVER_Error {
        RELEASED.fetch_add(1, Ordering::SeqCst);
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_ResponseFactoryNew(
        factory: *mut *mut TRITONBACKEND_ResponseFactory,
        request: *mut TRITONBACKEND_Request,
    ) -> *mut TRITONSERVER_Error {
        unsafe { *factory = request.cast() };
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_ResponseFactoryIsCancelled(
        factory: *mut TRITONBACKEND_ResponseFactory,
        cancelled: *mut bool,
    ) -> *mut TRITONSERVER_Error {
        unsafe { *cancelled = (&*factory.cast::<ClientRequest>()).cancelled };
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_ResponseNewFromFactory(
        response: *mut *mut TRITONBACKEND_Response,
        factory: *mut TRITONBACKEND_ResponseFactory,
    ) -> *mut TRITONSERVER_Error {
        unsafe { *response = factory.cast() };
        ptr::null_mut()
    }

    unsafe fn TRITONBACKEND_ResponseSend(
        response: *mut TRITONBACKEND_Response,
        _: u32,
        error: *mut TRITONSERVER_Error,
    ) -> *mut TRITONSERVER_Error {
        unsafe {
            let reply = error.cast::<Failure>().as_ref().map(|failure| {
                let message = failure.message.to_string_lossy().into_owned();
                (failure.code, message)
            });
            let _ = (&*response.cast::<ClientRequest>()).replies.send(reply);
        }
        ptr::null_mut()
    }

    unsafe fn TRITONSERVER_ResponseAllocatorNew(
        _: *mut *mut TRITONSERVER_ResponseAllocator,
        allocate: TRITONSERVER_ResponseAllocatorAllocFn_t,
        free: TRITONSERVER_ResponseAllocatorReleaseFn_t,
        _: TRITONSERVER_ResponseAllocatorStartFn_t,
    ) -> *mut TRITONSERVER_Error {
        *ALLOCATOR.lock().unwrap() = (allocate, free);
        ptr::null_mut()
    }

    unsafe fn TRITONSERVER_ServerInferAsync(
        _: *mut TRITONSERVER_Server,
        _: *mut TRITONSERVER_InferenceRequest,
        _: *mut TRITONSERVER_InferenceTrace,
    ) -> *mut TRITONSERVER_Error {
        failure(TRITONSERVER_ERROR_UNAVAILABLE, "Exceeds maximum queue size")
    }
}
