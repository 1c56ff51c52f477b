//! The library as Triton loads it, inside a simulation of Triton's C interface: requests whose
//! tensors lie on a GPU, engines without room, memory that nobody has written.
#![allow(non_snake_case)]

use std::ffi::c_int;
use std::process::Command;
use std::ptr;
use std::sync::atomic::Ordering;

use model::{Allocate, Free, Model};
use triton::*;

mod model;
#[allow(dead_code)]
#[path = "../shipped/mod.rs"]
mod shipped;
mod triton;

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
