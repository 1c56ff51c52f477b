//! What other models answer, and the memory that it comes in.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use super::error::{check, check_engine, fine, guarded, internal};
use super::ffi;
use super::memory::dimensions;
use crate::engine::{Answered, EngineError};
use crate::tensor::{DataType, Tensor};

/// Everything in a response, which is of no use to anybody else afterwards.
pub fn read(response: *mut ffi::InnerResponse) -> Answered {
    // SAFETY: what the response points to lives until it is deleted.
    unsafe {
        check_engine(ffi::TRITONSERVER_InferenceResponseError(response))?;
        let mut count = 0;
        check(ffi::TRITONSERVER_InferenceResponseOutputCount(
            response, &mut count,
        ))
        .map_err(EngineError::new)?;
        (0..count)
            .map(|index| output(response, index).map_err(EngineError::new))
            .collect()
    }
}

/// # Safety
/// The response is Triton's, has so many outputs, and this one was not read before.
unsafe fn output(response: *mut ffi::InnerResponse, index: u32) -> Result<Tensor, String> {
    let (mut name, mut kind): (*const c_char, c_int) = (ptr::null(), 0);
    let (mut shape, mut dims) = (ptr::null(), 0);
    let (mut base, mut size) = (ptr::null(), 0);
    let (mut memory, mut device, mut user) = (ffi::CPU, 0, ptr::null_mut());
    // SAFETY: as promised by the caller; buffers are those of `allocate`, on the CPU.
    unsafe {
        check(ffi::TRITONSERVER_InferenceResponseOutput(
            response,
            index,
            &mut name,
            &mut kind,
            &mut shape,
            &mut dims,
            &mut base,
            &mut size,
            &mut memory,
            &mut device,
            &mut user,
        ))?;
        let name = CStr::from_ptr(name).to_string_lossy().into_owned();
        let kind = DataType::from_number(kind)
            .ok_or_else(|| format!("{name} came as a type that nobody knows"))?;
        let mut data = match user.cast::<Vec<u8>>().as_mut() {
            Some(room) => std::mem::take(room),
            None => Vec::new(),
        };
        // Logits are megabytes: they are taken along, not copied.
        data.truncate(size);
        Ok(Tensor::new(
            name,
            kind,
            &dimensions(shape, dims as usize),
            data,
        ))
    }
}

/// Room for an output, always on the CPU. Of zeros: what an engine leaves unwritten must not show
/// a client what was in this memory before, which is often another client's text.
pub extern "C" fn allocate(
    _: *mut ffi::Allocator,
    _: *const c_char,
    size: usize,
    _: c_int,
    _: i64,
    _: *mut c_void,
    buffer: *mut *mut c_void,
    buffer_user: *mut *mut c_void,
    kind: *mut c_int,
    device: *mut i64,
) -> ffi::Failure {
    guarded(internal, || {
        let mut room = Box::new(vec![0_u8; size]);
        // SAFETY: all places for answers are Triton's.
        unsafe {
            *buffer = if size == 0 {
                ptr::null_mut()
            } else {
                room.as_mut_ptr().cast()
            };
            *buffer_user = Box::into_raw(room).cast();
            *kind = ffi::CPU;
            *device = 0;
        }
        fine()
    })
}

/// Gives back what `allocate` made.
pub extern "C" fn free(
    _: *mut ffi::Allocator,
    _: *mut c_void,
    buffer_user: *mut c_void,
    _: usize,
    _: c_int,
    _: i64,
) -> ffi::Failure {
    guarded(internal, || {
        if !buffer_user.is_null() {
            // SAFETY: `allocate` made it, and Triton gives it back once.
            drop(unsafe { Box::from_raw(buffer_user.cast::<Vec<u8>>()) });
        }
        fine()
    })
}
