//! A simulation of the target's engine. It generates the same token at every position. It reports
//! its outputs in memory of any type, in the library's buffers or in others. A streamed call sends
//! its first tokens at once, and ends only when it is cancelled.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use triton_sys::*;

use crate::triton::{ALLOCATOR, GPU_ADDRESS, take};

/// The token that every call adds.
pub const TOKEN: i32 = 33;
/// Tokens that a streamed call sends.
const STREAMED: usize = 2;
const NAMES: [&CStr; 2] = [c"output_ids", c"sequence_length"];

/// Where the engine reports its outputs.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub memory: c_int,
    /// The buffer that the library's allocator made; else one of the engine's own.
    pub in_library_buffer: bool,
}

/// The engine; None for one whose queue is full.
pub static ENGINE: Mutex<Option<Place>> = Mutex::new(None);
/// Streamed calls that have ended.
pub static ENDED_STREAMS: AtomicUsize = AtomicUsize::new(0);

/// A call of the library to the engine.
#[derive(Default)]
pub struct Call {
    ids: Vec<u8>,
    /// Tokens to verify.
    drafts: usize,
    streamed: bool,
    cancelled: AtomicBool,
    release: TRITONSERVER_InferenceRequestReleaseFn_t,
    release_userp: usize,
    respond: TRITONSERVER_InferenceResponseCompleteFn_t,
    respond_userp: usize,
}

struct Output {
    name: &'static CStr,
    shape: Vec<i64>,
    /// What the engine returns, in a buffer of its own.
    own: Vec<u8>,
    buffer: *mut c_void,
    buffer_userp: *mut c_void,
    place: Place,
}

impl Call {
    /// Keep the data of an input.
    ///
    /// # Safety
    /// `name` is a string, and `base` points to `size` bytes.
    pub unsafe fn add(&mut self, name: *const c_char, base: *const c_void, size: usize) {
        // SAFETY: as promised by the caller.
        unsafe {
            match CStr::from_ptr(name).to_bytes() {
                b"input_ids" => {
                    self.ids = std::slice::from_raw_parts(base.cast::<u8>(), size).to_vec();
                }
                b"draft_input_ids" => self.drafts = size / 4,
                b"streaming" => self.streamed = true,
                _ => (),
            }
        }
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }

    /// Send a response. `flags` state whether it is the last one. A null `response` has no outputs
    /// and only ends the call.
    fn respond(&self, response: *mut TRITONSERVER_InferenceResponse, flags: u32) {
        let userp = ptr::with_exposed_provenance_mut(self.respond_userp);
        // SAFETY: the callback and its argument are those that the library registered.
        unsafe { self.respond.unwrap()(response, flags, userp) };
    }

    pub fn on_release(
        &mut self,
        release: TRITONSERVER_InferenceRequestReleaseFn_t,
        userp: *mut c_void,
    ) {
        (self.release, self.release_userp) = (release, userp.expose_provenance());
    }

    pub fn on_response(
        &mut self,
        respond: TRITONSERVER_InferenceResponseCompleteFn_t,
        userp: *mut c_void,
    ) {
        (self.respond, self.respond_userp) = (respond, userp.expose_provenance());
    }
}

/// Answer a call from another thread, with outputs in this place.
pub fn start(call: *mut Call, place: Place) {
    let address = call.expose_provenance();
    // SAFETY: the library deletes the call in its release callback.
    let call = unsafe { &*call };
    if call.streamed {
        for _ in 0..STREAMED {
            call.respond(outputs(&[], 1, place), 0);
        }
    }
    std::thread::spawn(move || {
        let request = ptr::with_exposed_provenance_mut::<Call>(address);
        // SAFETY: as above.
        let call = unsafe { &*request };
        let response = match call.streamed {
            true => end_of_stream(call),
            false => outputs(&call.ids, call.drafts + 1, place),
        };
        let (release, userp) = (call.release.unwrap(), call.release_userp);
        call.respond(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
        // SAFETY: the callback and its argument are those that the library registered.
        unsafe {
            release(
                request.cast(),
                TRITONSERVER_REQUEST_RELEASE_ALL,
                ptr::with_exposed_provenance_mut(userp),
            );
        }
    });
}

/// The last response of a stream, which has no outputs, after the call was cancelled.
fn end_of_stream(call: &Call) -> *mut TRITONSERVER_InferenceResponse {
    while !call.cancelled.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    ENDED_STREAMS.fetch_add(1, Ordering::SeqCst);
    ptr::null_mut()
}

/// A response with the prefix and new tokens.
fn outputs(ids: &[u8], new: usize, place: Place) -> *mut TRITONSERVER_InferenceResponse {
    let ids = [ids, &TOKEN.to_le_bytes().repeat(new)].concat();
    let count = ids.len() / 4;
    let length = (count as i32).to_le_bytes().to_vec();
    let [first, second] = NAMES;
    let outputs = vec![
        output(first, vec![1, 1, count as i64], ids, place),
        output(second, vec![1, 1], length, place),
    ];
    Box::into_raw(Box::new(outputs)).cast()
}

/// An output in a buffer of the library's allocator, or beside it.
fn output(name: &'static CStr, shape: Vec<i64>, own: Vec<u8>, place: Place) -> Output {
    let allocate = ALLOCATOR.lock().unwrap().allocate.unwrap();
    let (mut buffer, mut buffer_userp) = (ptr::null_mut(), ptr::null_mut());
    let (mut memory, mut device) = (place.memory, 0);
    // SAFETY: all places for results are valid, and the buffer has the size that was asked for.
    unsafe {
        let failed = allocate(
            ptr::null_mut(),
            name.as_ptr(),
            own.len(),
            place.memory,
            0,
            ptr::null_mut(),
            &mut buffer,
            &mut buffer_userp,
            &mut memory,
            &mut device,
        );
        assert_eq!(take(failed), None);
        assert_eq!((memory, device), (TRITONSERVER_MEMORY_CPU, 0));
        if place.in_library_buffer {
            ptr::copy_nonoverlapping(own.as_ptr(), buffer.cast(), own.len());
        }
    }
    Output {
        name,
        shape,
        own,
        buffer,
        buffer_userp,
        place,
    }
}

/// Number of outputs of a response.
///
/// # Safety
/// `response` is one that the engine sent and that was not deleted.
pub unsafe fn count(response: *mut TRITONSERVER_InferenceResponse) -> u32 {
    // SAFETY: as promised by the caller.
    unsafe { &*response.cast::<Vec<Output>>() }.len() as u32
}

/// Name, shape, address, size, memory and `userp` of an output.
///
/// # Safety
/// As for [`count`]; the response has an output of this index.
pub unsafe fn described(
    response: *mut TRITONSERVER_InferenceResponse,
    index: u32,
) -> (
    &'static CStr,
    *const [i64],
    *const c_void,
    usize,
    c_int,
    *mut c_void,
) {
    // SAFETY: as promised by the caller.
    let outputs = unsafe { &*response.cast::<Vec<Output>>() };
    let output = &outputs[index as usize];
    let base = match output.place {
        Place {
            memory: TRITONSERVER_MEMORY_GPU,
            ..
        } => GPU_ADDRESS,
        Place {
            in_library_buffer: true,
            ..
        } => output.buffer.cast_const(),
        _ => output.own.as_ptr().cast(),
    };
    (
        output.name,
        output.shape.as_slice(),
        base,
        output.own.len(),
        output.place.memory,
        output.buffer_userp,
    )
}

/// Delete a response and its buffers.
///
/// # Safety
/// As for [`count`]; nothing uses the response afterwards.
pub unsafe fn delete(response: *mut TRITONSERVER_InferenceResponse) {
    let free = ALLOCATOR.lock().unwrap().free.unwrap();
    // SAFETY: as promised by the caller.
    for output in *unsafe { Box::from_raw(response.cast::<Vec<Output>>()) } {
        // SAFETY: the library's allocator made the buffer.
        let failed = unsafe {
            free(
                ptr::null_mut(),
                output.buffer,
                output.buffer_userp,
                output.own.len(),
                TRITONSERVER_MEMORY_CPU,
                0,
            )
        };
        assert_eq!(take(failed), None);
    }
}

/// The text of an answer of so many tokens to `prompt`, as Triton stores it.
pub fn packed_text(prompt: &str, tokens: usize) -> Vec<u8> {
    let text = format!("{prompt}{}", "A".repeat(tokens));
    let text = CString::new(text).unwrap().into_bytes();
    [(text.len() as u32).to_le_bytes().to_vec(), text].concat()
}
