//! Reads the input tensors of a client's request out of Triton's buffers.

use std::ptr;

use triton_sys as sys;

use crate::error::{Code, Error, check};
use crate::memory::{copy_shape, copy_text, require_cpu};
use crate::tensor::{DataType, Tensor};

/// Name, shape and size of an input, without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSize {
    pub name: String,
    pub shape: Vec<i64>,
    pub byte_size: usize,
}

/// An input whose data is still in Triton's buffers.
pub(crate) struct Input {
    input: *mut sys::TRITONBACKEND_Input,
    kind: sys::TRITONSERVER_DataType,
    pub(crate) size: InputSize,
    buffer_count: u32,
}

impl Input {
    /// The input at this index of a request.
    ///
    /// # Safety
    /// `request` is a request of Triton that was not released.
    pub(crate) unsafe fn of(
        request: *mut sys::TRITONBACKEND_Request,
        index: u32,
    ) -> Result<Self, Error> {
        let mut input = ptr::null_mut();
        let (mut name, mut kind) = (ptr::null(), sys::TRITONSERVER_TYPE_INVALID);
        let (mut shape, mut dimensions) = (ptr::null(), 0);
        let (mut byte_size, mut buffer_count) = (0, 0);
        // SAFETY: as promised by the caller; what Triton points to lives as long as the request.
        unsafe {
            check(sys::TRITONBACKEND_RequestInputByIndex(
                request, index, &mut input,
            ))?;
            check(sys::TRITONBACKEND_InputProperties(
                input,
                &mut name,
                &mut kind,
                &mut shape,
                &mut dimensions,
                &mut byte_size,
                &mut buffer_count,
            ))?;
            let size = InputSize {
                name: copy_text(name),
                shape: copy_shape(shape, dimensions as usize),
                byte_size: byte_size as usize,
            };
            Ok(Self {
                input,
                kind,
                size,
                buffer_count,
            })
        }
    }

    /// Copy the input's data, which may be in several buffers, into a tensor.
    ///
    /// # Safety
    /// The input's request was not released.
    pub(crate) unsafe fn read(self) -> Result<Tensor, Error> {
        let InputSize {
            name,
            shape,
            byte_size,
        } = self.size;
        let Some(kind) = DataType::from_number(self.kind) else {
            let message = format!("{name} has an unknown element type: use a type of Triton's");
            return Err(Error::new(Code::InvalidArg, message));
        };
        let mut data = Vec::with_capacity(byte_size);
        for index in 0..self.buffer_count {
            let (mut base, mut length) = (ptr::null(), 0);
            let (mut memory_type, mut memory_type_id) = (sys::TRITONSERVER_MEMORY_CPU, 0);
            // SAFETY: as promised by the caller; only bytes in system memory are read.
            unsafe {
                check(sys::TRITONBACKEND_InputBuffer(
                    self.input,
                    index,
                    &mut base,
                    &mut length,
                    &mut memory_type,
                    &mut memory_type_id,
                ))?;
                require_cpu(&name, memory_type)?;
                if length > 0 {
                    let bytes = std::slice::from_raw_parts(base.cast::<u8>(), length as usize);
                    data.extend_from_slice(bytes);
                }
            }
        }
        Ok(Tensor::new(name, kind, &shape, data))
    }
}
