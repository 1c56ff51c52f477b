//! Allocates the buffers that called models write their outputs to.
//!
//! Triton asks for a buffer for each output of a response. A buffer is a vector of bytes, so that
//! an output becomes a tensor without a copy.

use std::ffi::{c_char, c_void};
use std::ptr;

use triton_sys as sys;

use crate::error::{Error, catch_panic};

fn allocation_failed() -> *mut sys::TRITONSERVER_Error {
    Error::internal("a buffer of an output could not be made or freed: see the server's log")
        .into_raw()
}

/// Make a buffer, always in system memory.
///
/// The buffer is filled with zeros. Otherwise, bytes that an engine leaves unwritten could show a
/// client the text of another client.
///
/// # Safety
/// Triton calls it with valid pointers for all results.
pub(crate) unsafe extern "C" fn allocate(
    _: *mut sys::TRITONSERVER_ResponseAllocator,
    _: *const c_char,
    byte_size: usize,
    _: sys::TRITONSERVER_MemoryType,
    _: i64,
    _: *mut c_void,
    buffer: *mut *mut c_void,
    buffer_userp: *mut *mut c_void,
    memory_type: *mut sys::TRITONSERVER_MemoryType,
    memory_type_id: *mut i64,
) -> *mut sys::TRITONSERVER_Error {
    catch_panic(allocation_failed, || {
        let mut bytes = Box::new(vec![0_u8; byte_size]);
        // SAFETY: as promised by the caller.
        unsafe {
            *buffer = if byte_size == 0 {
                ptr::null_mut()
            } else {
                bytes.as_mut_ptr().cast()
            };
            *buffer_userp = Box::into_raw(bytes).cast();
            *memory_type = sys::TRITONSERVER_MEMORY_CPU;
            *memory_type_id = 0;
        }
        ptr::null_mut()
    })
}

/// Report to a backend, before it writes an output, where the buffer will be.
///
/// # Safety
/// Triton calls it with valid pointers for all results.
pub(crate) unsafe extern "C" fn query(
    _: *mut sys::TRITONSERVER_ResponseAllocator,
    _: *mut c_void,
    _: *const c_char,
    _: *mut usize,
    memory_type: *mut sys::TRITONSERVER_MemoryType,
    memory_type_id: *mut i64,
) -> *mut sys::TRITONSERVER_Error {
    // SAFETY: as promised by the caller.
    unsafe {
        *memory_type = sys::TRITONSERVER_MEMORY_CPU;
        *memory_type_id = 0;
    }
    ptr::null_mut()
}

/// Free a buffer.
///
/// # Safety
/// Triton calls it once for each buffer of [`allocate`].
pub(crate) unsafe extern "C" fn free(
    _: *mut sys::TRITONSERVER_ResponseAllocator,
    _: *mut c_void,
    buffer_userp: *mut c_void,
    _: usize,
    _: sys::TRITONSERVER_MemoryType,
    _: i64,
) -> *mut sys::TRITONSERVER_Error {
    catch_panic(allocation_failed, || {
        if !buffer_userp.is_null() {
            // SAFETY: `allocate` made it, and Triton returns it once.
            drop(unsafe { Box::from_raw(buffer_userp.cast::<Vec<u8>>()) });
        }
        ptr::null_mut()
    })
}

/// Move the bytes of an output out of its buffer, and leave the buffer empty. If the bytes are at
/// another address than the buffer, they are copied.
///
/// # Safety
/// `buffer_userp` is null or comes from [`allocate`]. It was not freed, and no other thread has it.
/// `base` points to `byte_size` bytes in host memory.
pub(crate) unsafe fn take_bytes(
    buffer_userp: *mut c_void,
    base: *const c_void,
    byte_size: usize,
) -> Vec<u8> {
    if byte_size == 0 {
        return Vec::new();
    }
    let base = base.cast::<u8>();
    // SAFETY: as promised by the caller.
    let buffer = unsafe { buffer_userp.cast::<Vec<u8>>().as_mut() };
    match buffer {
        Some(buffer) if buffer.as_ptr() == base && buffer.len() >= byte_size => {
            let mut bytes = std::mem::take(buffer);
            bytes.truncate(byte_size);
            bytes
        }
        // SAFETY: as promised by the caller.
        _ => unsafe { std::slice::from_raw_parts(base, byte_size) }.to_vec(),
    }
}
