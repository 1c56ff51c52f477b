//! Copies data from Triton's pointers, and returns free memory to the system.

use std::ffi::{CStr, c_char};

use triton_sys as sys;

use crate::error::{Code, Error};

/// Whether the processor can read and write memory of this type. Pinned memory is host memory.
///
/// Triton's C interface has no function that copies from a GPU, and this library does not use
/// CUDA. Any other memory is refused.
fn is_host(memory_type: sys::TRITONSERVER_MemoryType) -> bool {
    matches!(
        memory_type,
        sys::TRITONSERVER_MEMORY_CPU | sys::TRITONSERVER_MEMORY_CPU_PINNED
    )
}

/// Refuse a client's tensor that the processor cannot access, such as CUDA shared memory.
pub(crate) fn require_cpu(
    tensor: &str,
    memory_type: sys::TRITONSERVER_MemoryType,
) -> Result<(), Error> {
    if is_host(memory_type) {
        return Ok(());
    }
    Err(Error::new(
        Code::InvalidArg,
        format!(
            "{tensor} is in GPU memory, which this model does not read or write: use system memory"
        ),
    ))
}

/// Refuse an output of a called model that the processor cannot read.
pub(crate) fn require_readable(
    output: &str,
    memory_type: sys::TRITONSERVER_MemoryType,
) -> Result<(), Error> {
    if is_host(memory_type) {
        return Ok(());
    }
    Err(Error::internal(format!(
        "{output} is in GPU memory, which this model cannot read: \
         use a backend that writes outputs to the system memory that it requested"
    )))
}

/// A copy of a shape.
///
/// # Safety
/// `shape` is null, or points to `count` numbers.
pub(crate) unsafe fn copy_shape(shape: *const i64, count: usize) -> Vec<i64> {
    if shape.is_null() {
        return Vec::new();
    }
    // SAFETY: as promised by the caller.
    unsafe { std::slice::from_raw_parts(shape, count) }.to_vec()
}

/// A copy of a C string.
///
/// # Safety
/// `text` points to a string that ends with NUL.
pub(crate) unsafe fn copy_text(text: *const c_char) -> String {
    // SAFETY: as promised by the caller.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// Return to the system the memory that was freed and that glibc still keeps. Meanwhile,
/// allocations of other threads wait.
pub fn release_free_memory() {
    // SAFETY: glibc allows this call at any time, from any thread.
    unsafe { libc::malloc_trim(0) };
}
