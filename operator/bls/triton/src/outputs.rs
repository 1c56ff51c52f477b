//! The outputs of a response to a call: tensors out of the buffers that Triton returns.

use std::ptr;

use triton_sys as sys;

use crate::allocator::take_bytes;
use crate::error::{Code, Error, check};
use crate::memory::{copy_shape, copy_text, require_readable};
use crate::tensor::{DataType, Tensor};

/// Move all outputs out of a response, whose buffers are empty afterwards.
///
/// # Safety
/// `response` is a response of Triton that this thread owns and that was not read before.
pub unsafe fn read_outputs(
    response: *mut sys::TRITONSERVER_InferenceResponse,
) -> Result<Vec<Tensor>, Error> {
    let mut count = 0;
    // SAFETY: as promised by the caller. According to Triton's header, the response owns its error.
    // In fact, `InferenceResponseError` returns a new error each time, and the error is ours
    // (`RETURN_IF_STATUS_ERROR` in Triton's core).
    unsafe {
        check(sys::TRITONSERVER_InferenceResponseError(response))?;
        check(sys::TRITONSERVER_InferenceResponseOutputCount(
            response, &mut count,
        ))?;
        (0..count)
            .map(|index| read_output(response, index))
            .collect()
    }
}

/// # Safety
/// `response` is as for [`read_outputs`], and this output was not read before.
unsafe fn read_output(
    response: *mut sys::TRITONSERVER_InferenceResponse,
    index: u32,
) -> Result<Tensor, Error> {
    let (mut name, mut kind) = (ptr::null(), sys::TRITONSERVER_TYPE_INVALID);
    let (mut shape, mut dimensions) = (ptr::null(), 0);
    let (mut base, mut byte_size) = (ptr::null(), 0);
    let (mut memory_type, mut memory_type_id) = (sys::TRITONSERVER_MEMORY_CPU, 0);
    let mut buffer = ptr::null_mut();
    // SAFETY: as promised by the caller; every buffer is one of `allocate`, and only bytes in host
    // memory are read.
    unsafe {
        check(sys::TRITONSERVER_InferenceResponseOutput(
            response,
            index,
            &mut name,
            &mut kind,
            &mut shape,
            &mut dimensions,
            &mut base,
            &mut byte_size,
            &mut memory_type,
            &mut memory_type_id,
            &mut buffer,
        ))?;
        let name = copy_text(name);
        let Some(kind) = DataType::from_number(kind) else {
            let message = format!("its output {name} has an unknown element type");
            return Err(Error::new(Code::Internal, message));
        };
        let shape = copy_shape(shape, dimensions as usize);
        require_readable(&name, memory_type)?;
        let data = take_bytes(buffer, base, byte_size);
        Ok(Tensor::new(name, kind, &shape, data))
    }
}
