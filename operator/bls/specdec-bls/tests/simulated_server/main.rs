//! Loads the library as Triton does, with a simulation of Triton's C interface. The cases are those
//! of the interface itself: tensors on a GPU, engines with a full queue, unwritten output buffers.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_void};
use std::process::Command;
use std::ptr;

use model::Model;
use triton::*;

#[macro_use]
mod calls;
mod engine;
#[macro_use]
mod gauges;
mod memory;
mod model;
#[macro_use]
mod responses;
#[allow(dead_code)]
#[path = "../shipped/mod.rs"]
mod shipped;
mod stops;
mod streams;
mod triton;

fn text(memory: c_int) -> Input {
    Input {
        name: c"text_input".into(),
        kind: TRITONSERVER_TYPE_BYTES,
        shape: vec![1, 1],
        data: b"\x02\0\0\0ab".to_vec(),
        memory,
    }
}

fn max_tokens() -> Input {
    Input {
        name: c"max_tokens".into(),
        kind: TRITONSERVER_TYPE_INT32,
        shape: vec![1, 1],
        data: vec![4, 0, 0, 0],
        memory: TRITONSERVER_MEMORY_CPU,
    }
}

#[test]
fn tensors_in_memory_of_a_gpu_are_refused() {
    let reply = Model::load().reply(vec![text(TRITONSERVER_MEMORY_GPU), max_tokens()]);
    let sentence = "text_input is in GPU memory, which this model does not read or write: \
                    use system memory";
    assert_eq!(
        reply,
        Some((TRITONSERVER_ERROR_INVALID_ARG, sentence.to_owned()))
    );
}

#[test]
fn engine_without_room_is_unavailable() {
    let reply = Model::load().reply(vec![text(TRITONSERVER_MEMORY_CPU), max_tokens()]);
    let sentence = "tensorrt_llm: Exceeds maximum queue size: send the request again later";
    assert_eq!(
        reply,
        Some((TRITONSERVER_ERROR_UNAVAILABLE, sentence.to_owned()))
    );
}

#[test]
fn concurrent_requests_are_answered_each() {
    let request = |number: usize| match number % 3 {
        0 => vec![text(TRITONSERVER_MEMORY_CPU), max_tokens()],
        1 => vec![text(TRITONSERVER_MEMORY_GPU), max_tokens()],
        _ => vec![text(TRITONSERVER_MEMORY_CPU)],
    };
    // More requests than the queue, the threads and the slots take together.
    let replies = Model::load().replies((0..120).map(request).collect(), false);
    for (number, reply) in replies.into_iter().enumerate() {
        let (code, sentence) = reply.unwrap();
        let (expected, begin) = match number % 3 {
            0 => (
                TRITONSERVER_ERROR_UNAVAILABLE,
                "tensorrt_llm: Exceeds maximum queue size",
            ),
            1 => (
                TRITONSERVER_ERROR_INVALID_ARG,
                "text_input is in GPU memory",
            ),
            _ => (
                TRITONSERVER_ERROR_INVALID_ARG,
                "max_tokens is 0: set it to 1 or more",
            ),
        };
        assert_eq!(code, expected);
        assert!(sentence.starts_with(begin), "{sentence}");
    }
}

#[test]
fn request_cancelled_while_it_waits_is_not_read() {
    // If the request were read, the error would be another one.
    let replies = Model::load().replies(vec![vec![text(TRITONSERVER_MEMORY_GPU)]; 20], true);
    for reply in replies {
        assert_eq!(
            reply,
            Some((
                TRITONSERVER_ERROR_CANCELLED,
                "the request was cancelled".to_owned()
            ))
        );
    }
}

#[test]
fn large_prompts_are_refused_before_they_are_read() {
    let mut large = text(TRITONSERVER_MEMORY_CPU);
    // Only its size may be read.
    large.memory = TRITONSERVER_MEMORY_GPU;
    large.data = vec![b'a'; 50 << 20];
    let (code, sentence) = Model::load().reply(vec![large, max_tokens()]).unwrap();
    assert_eq!(code, TRITONSERVER_ERROR_INVALID_ARG);
    assert!(
        sentence.starts_with("text_input has 52428796 bytes, more than the limit of 65536 "),
        "{sentence}"
    );
}

/// Let the library's allocator make a buffer; its bytes and the pointer that frees it.
fn allocate(size: usize) -> Result<(Vec<u8>, *mut c_void), (c_int, String)> {
    let allocate = ALLOCATOR.lock().unwrap().allocate.unwrap();
    let (mut base, mut user) = (ptr::null_mut(), ptr::null_mut());
    let (mut memory, mut device) = (TRITONSERVER_MEMORY_GPU, 7);
    // SAFETY: all places for results are valid.
    let failed = take(unsafe {
        allocate(
            ptr::null_mut(),
            c"output_ids".as_ptr(),
            size,
            TRITONSERVER_MEMORY_GPU,
            7,
            ptr::null_mut(),
            &mut base,
            &mut user,
            &mut memory,
            &mut device,
        )
    });
    if let Some(error) = failed {
        return Err(error);
    }
    assert_eq!((memory, device), (TRITONSERVER_MEMORY_CPU, 0));
    // SAFETY: the library allocated as many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(base.cast::<u8>(), size) };
    Ok((bytes.to_vec(), user))
}

#[test]
fn output_buffer_contains_no_earlier_data() {
    let model = Model::load();
    let free = ALLOCATOR.lock().unwrap().free.unwrap();
    for size in [1, 64, 1000, 50_000] {
        // Fill free memory with what could be another client's text.
        let others: Vec<Vec<u8>> = (0..20).map(|_| vec![b'x'; size]).collect();
        drop(others);
        let (bytes, user) = allocate(size).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0), "{size}");
        let allocator = ptr::null_mut();
        // SAFETY: the library made the buffer, which is freed once.
        let failed = unsafe {
            free(
                allocator,
                ptr::null_mut(),
                user,
                size,
                TRITONSERVER_MEMORY_CPU,
                0,
            )
        };
        assert!(failed.is_null());
    }
    drop(model);
}

#[test]
fn panic_never_reaches_the_server() {
    let model = Model::load();
    // No vector can have this size, so the library's own code panics.
    let (code, message) = allocate(usize::MAX).unwrap_err();
    assert_eq!(code, TRITONSERVER_ERROR_INTERNAL);
    assert!(message.starts_with("a buffer of an output could not be made"));
    drop(model);
}

#[test]
fn thread_that_cannot_start_fails_the_load() {
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "loads_without_threads", "--ignored"])
        .args(["--test-threads=1", "--nocapture"])
        // No thread can have a stack of that size.
        .env("RUST_MIN_STACK", (1_u64 << 46).to_string())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(
        run.status.success() && output.contains("1 passed"),
        "{output}"
    );
}

#[test]
#[ignore = "runs in a process that can start no thread"]
fn loads_without_threads() {
    let (_, message) = Model::try_load().expect("it was loaded");
    assert!(
        message.starts_with("tensorrt_llm_bls cannot start a thread ("),
        "{message}"
    );
}
