//! Copies data from Triton's pointers, and returns free memory to the system.

use std::ffi::{CStr, c_char};

use triton_sys as sys;

use crate::error::{Code, Error};

/// Refuse memory that the processor cannot read, such as a client's CUDA shared memory.
pub(crate) fn require_cpu(
    tensor: &str,
    memory_type: sys::TRITONSERVER_MemoryType,
) -> Result<(), Error> {
    match memory_type {
        sys::TRITONSERVER_MEMORY_CPU | sys::TRITONSERVER_MEMORY_CPU_PINNED => Ok(()),
        _ => Err(Error::new(
            Code::InvalidArg,
            format!(
                "{tensor} is in GPU memory, which this model does not read or write: \
                 use system memory"
            ),
        )),
    }
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

/// Return the memory that glibc keeps free to the system. Allocations of other threads wait
/// meanwhile.
pub fn release_free_memory() {
    // SAFETY: glibc allows this call at any time, from any thread.
    unsafe { libc::malloc_trim(0) };
}
