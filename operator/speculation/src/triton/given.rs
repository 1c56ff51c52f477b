//! Tensors of requests, where Triton has them.

use std::ffi::c_int;
use std::ptr;

use super::error::check;
use super::ffi;
use super::memory::on_cpu;
use crate::tensor::{DataType, Tensor};

/// A tensor of a request that was not released yet.
pub struct Given {
    pub input: *mut ffi::Input,
    pub name: String,
    pub kind: c_int,
    pub shape: Vec<i64>,
    pub size: usize,
    pub buffers: u32,
}

impl Given {
    /// A copy of it.
    ///
    /// # Errors
    /// An unknown type, or memory of a GPU.
    pub fn tensor(&self) -> Result<Tensor, String> {
        let name = self.name.clone();
        let kind = DataType::from_number(self.kind)
            .ok_or_else(|| format!("{name} is of a type that no model takes"))?;
        let mut data = Vec::with_capacity(self.size);
        for place in 0..self.buffers {
            let (mut base, mut length) = (ptr::null(), 0);
            let (mut memory, mut device) = (ffi::CPU, 0);
            // SAFETY: the input is Triton's until its request is released; only bytes that the
            // processor can read are copied.
            unsafe {
                check(ffi::TRITONBACKEND_InputBuffer(
                    self.input,
                    place,
                    &mut base,
                    &mut length,
                    &mut memory,
                    &mut device,
                ))?;
                on_cpu(&name, memory)?;
                if length > 0 {
                    let bytes = std::slice::from_raw_parts(base.cast::<u8>(), length as usize);
                    data.extend_from_slice(bytes);
                }
            }
        }
        Ok(Tensor::new(name, kind, &self.shape, data))
    }
}
