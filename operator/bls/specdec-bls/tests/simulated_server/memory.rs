//! Outputs in memory of each type: those of an engine, and those that a client reads.

use std::ffi::c_int;
use std::ptr;

use crate::engine::{Place, packed_text};
use crate::model::Model;
use crate::triton::*;
use crate::{max_tokens, text};

fn place(memory: c_int, in_library_buffer: bool) -> Option<Place> {
    Some(Place {
        memory,
        in_library_buffer,
    })
}

fn answer(model: &Model, output_memory: c_int) -> (Vec<(c_int, String)>, Vec<Vec<u8>>) {
    let inputs = vec![text(TRITONSERVER_MEMORY_CPU), max_tokens()];
    model.answer(inputs, output_memory)
}

#[test]
fn outputs_of_an_engine_in_host_memory_are_read() {
    for memory in [TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_CPU_PINNED] {
        for in_library_buffer in [true, false] {
            let model = Model::load_with(place(memory, in_library_buffer), true);
            let answered = answer(&model, TRITONSERVER_MEMORY_CPU);
            let expected = (vec![], vec![packed_text("ab", 1)]);
            assert_eq!(answered, expected, "{memory} {in_library_buffer}");
        }
    }
}

#[test]
fn outputs_of_an_engine_in_gpu_memory_are_one_error() {
    for decoupled in [true, false] {
        let model = Model::load_with(place(TRITONSERVER_MEMORY_GPU, true), decoupled);
        let (errors, outputs) = answer(&model, TRITONSERVER_MEMORY_CPU);
        let sentence = "tensorrt_llm: output_ids is in GPU memory, which this model cannot read: \
                        use a backend that writes outputs to the system memory that it requested";
        assert_eq!(
            errors,
            [(TRITONSERVER_ERROR_INVALID_ARG, sentence.to_owned())]
        );
        assert!(outputs.is_empty());
    }
}

#[test]
fn client_reads_outputs_from_pinned_memory() {
    for decoupled in [true, false] {
        let model = Model::load_with(place(TRITONSERVER_MEMORY_CPU, true), decoupled);
        let answered = answer(&model, TRITONSERVER_MEMORY_CPU_PINNED);
        assert_eq!(
            answered,
            (vec![], vec![packed_text("ab", 1)]),
            "{decoupled}"
        );
    }
}

#[test]
fn client_that_reads_outputs_from_a_gpu_gets_one_error() {
    for decoupled in [true, false] {
        let model = Model::load_with(place(TRITONSERVER_MEMORY_CPU, true), decoupled);
        let (errors, _) = answer(&model, TRITONSERVER_MEMORY_GPU);
        let sentence = "text_output is in GPU memory, which this model does not read or write: \
                        use system memory";
        assert_eq!(
            errors,
            [(TRITONSERVER_ERROR_INVALID_ARG, sentence.to_owned())]
        );
    }
}

#[test]
fn backend_that_asks_learns_that_outputs_go_to_system_memory() {
    let model = Model::load();
    let query = ALLOCATOR.lock().unwrap().query;
    let query = query.expect("no query function is registered");
    for preferred in [
        TRITONSERVER_MEMORY_CPU,
        TRITONSERVER_MEMORY_CPU_PINNED,
        TRITONSERVER_MEMORY_GPU,
    ] {
        let (mut memory, mut device, mut size) = (preferred, 7, 64);
        // SAFETY: all places for results are valid.
        let failed = unsafe {
            query(
                ptr::null_mut(),
                ptr::null_mut(),
                c"output_ids".as_ptr(),
                &mut size,
                &mut memory,
                &mut device,
            )
        };
        assert_eq!(take(failed), None);
        assert_eq!((memory, device, size), (TRITONSERVER_MEMORY_CPU, 0, 64));
    }
    drop(model);
}
