//! Memory that Triton points to.

use std::ffi::c_int;

use super::ffi;

/// Refuse memory that the processor cannot read, such as a client's shared memory of CUDA.
///
/// # Errors
/// The tensor lies on a GPU: one sentence.
pub fn on_cpu(name: &str, kind: c_int) -> Result<(), String> {
    match kind {
        ffi::CPU | ffi::CPU_PINNED => Ok(()),
        _ => Err(format!(
            "{name} is in GPU memory, which tensorrt_llm_bls does not read or write: \
             use system memory"
        )),
    }
}

/// A copy of a shape, which may be a null pointer where there are no dimensions.
///
/// # Safety
/// The pointer is null, or to as many numbers as there are dimensions.
pub unsafe fn dimensions(shape: *const i64, count: usize) -> Vec<i64> {
    if shape.is_null() {
        return Vec::new();
    }
    // SAFETY: as promised by the caller.
    unsafe { std::slice::from_raw_parts(shape, count) }.to_vec()
}
