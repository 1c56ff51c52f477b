//! Tensors in system memory: a name, an element type, a shape and bytes.
//!
//! Clients' requests, calls of other models and responses all carry this type.

use std::borrow::Cow;

use triton_sys as sys;

/// Element types; the numbers are Triton's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum DataType {
    Bool = sys::TRITONSERVER_TYPE_BOOL,
    Uint8 = sys::TRITONSERVER_TYPE_UINT8,
    Uint16 = sys::TRITONSERVER_TYPE_UINT16,
    Uint32 = sys::TRITONSERVER_TYPE_UINT32,
    Uint64 = sys::TRITONSERVER_TYPE_UINT64,
    Int8 = sys::TRITONSERVER_TYPE_INT8,
    Int16 = sys::TRITONSERVER_TYPE_INT16,
    Int32 = sys::TRITONSERVER_TYPE_INT32,
    Int64 = sys::TRITONSERVER_TYPE_INT64,
    Fp16 = sys::TRITONSERVER_TYPE_FP16,
    Fp32 = sys::TRITONSERVER_TYPE_FP32,
    Fp64 = sys::TRITONSERVER_TYPE_FP64,
    Bytes = sys::TRITONSERVER_TYPE_BYTES,
    Bf16 = sys::TRITONSERVER_TYPE_BF16,
}

impl DataType {
    /// The type with this number of Triton's; None for an unknown number.
    pub fn from_number(number: i32) -> Option<Self> {
        use DataType::*;
        [
            Bool, Uint8, Uint16, Uint32, Uint64, Int8, Int16, Int32, Int64, Fp16, Fp32, Fp64,
            Bytes, Bf16,
        ]
        .into_iter()
        .find(|kind| *kind as i32 == number)
    }

    /// Bytes of one element; None for strings, whose lengths differ.
    pub fn width(self) -> Option<usize> {
        use DataType::*;
        match self {
            Bool | Uint8 | Int8 => Some(1),
            Uint16 | Int16 | Fp16 | Bf16 => Some(2),
            Uint32 | Int32 | Fp32 => Some(4),
            Uint64 | Int64 | Fp64 => Some(8),
            Bytes => None,
        }
    }
}

/// A tensor in system memory, row-major, little-endian.
///
/// Strings are stored as Triton stores them, each after its length in four bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub name: Cow<'static, str>,
    pub kind: DataType,
    pub shape: Vec<i64>,
    pub data: Vec<u8>,
}

impl Tensor {
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        kind: DataType,
        shape: &[i64],
        data: Vec<u8>,
    ) -> Self {
        Self {
            name: name.into(),
            kind,
            shape: shape.to_vec(),
            data,
        }
    }

    /// Integers of 32 bits in the given shape.
    pub fn int32(name: impl Into<Cow<'static, str>>, shape: &[i64], values: &[i32]) -> Self {
        let data = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        Self::new(name, DataType::Int32, shape, data)
    }

    /// One integer of 32 bits, [1, 1].
    pub fn scalar(name: impl Into<Cow<'static, str>>, value: i32) -> Self {
        Self::int32(name, &[1, 1], &[value])
    }

    /// Floats of 32 bits in the given shape.
    pub fn fp32(name: impl Into<Cow<'static, str>>, shape: &[i64], values: &[f32]) -> Self {
        let data = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        Self::new(name, DataType::Fp32, shape, data)
    }

    /// The boolean true, [1, 1].
    pub fn flag(name: impl Into<Cow<'static, str>>) -> Self {
        Self::new(name, DataType::Bool, &[1, 1], vec![1])
    }

    /// One string in the given shape.
    pub fn text(name: impl Into<Cow<'static, str>>, shape: &[i64], text: &str) -> Self {
        Self::new(name, DataType::Bytes, shape, packed(&[text.as_bytes()]))
    }

    /// Number of elements by the shape.
    pub fn count(&self) -> usize {
        self.shape.iter().product::<i64>().max(0) as usize
    }

    /// The elements of a tensor of integers of any width, in order; empty for any other tensor.
    pub fn integers(&self) -> Vec<i64> {
        match self.kind {
            DataType::Bool | DataType::Uint8 => self.data.iter().map(|b| i64::from(*b)).collect(),
            DataType::Int8 => self.data.iter().map(|b| i64::from(*b as i8)).collect(),
            DataType::Int16 => self.map_elements(|b: [u8; 2]| i64::from(i16::from_le_bytes(b))),
            DataType::Uint16 => self.map_elements(|b: [u8; 2]| i64::from(u16::from_le_bytes(b))),
            DataType::Int32 => self.map_elements(|b: [u8; 4]| i64::from(i32::from_le_bytes(b))),
            DataType::Uint32 => self.map_elements(|b: [u8; 4]| i64::from(u32::from_le_bytes(b))),
            DataType::Int64 => self.map_elements(i64::from_le_bytes),
            // Seeds are unsigned and of 64 bits: the cast keeps every bit.
            DataType::Uint64 => self.map_elements(|b: [u8; 8]| u64::from_le_bytes(b) as i64),
            _ => Vec::new(),
        }
    }

    /// The elements of a tensor of floats, in order; empty for any other tensor.
    pub fn floats(&self) -> Vec<f32> {
        match self.kind {
            DataType::Fp32 => self.map_elements(f32::from_le_bytes),
            DataType::Fp64 => self.map_elements(|b: [u8; 8]| f64::from_le_bytes(b) as f32),
            DataType::Fp16 => self.map_elements(|b: [u8; 2]| half::f16::from_le_bytes(b).to_f32()),
            DataType::Bf16 => self.map_elements(|b: [u8; 2]| half::bf16::from_le_bytes(b).to_f32()),
            _ => Vec::new(),
        }
    }

    /// The elements of a tensor of strings, in order. A length beyond the data ends the list.
    pub fn strings(&self) -> Vec<&[u8]> {
        let mut strings = Vec::new();
        let mut rest = self.data.as_slice();
        while let Some((length, data)) = rest.split_first_chunk::<4>() {
            let Some((text, after)) = data.split_at_checked(u32::from_le_bytes(*length) as usize)
            else {
                break;
            };
            strings.push(text);
            rest = after;
        }
        strings
    }

    /// Every `N` bytes as one element.
    fn map_elements<const N: usize, T>(&self, read: impl Fn([u8; N]) -> T) -> Vec<T> {
        let (whole, _) = self.data.as_chunks::<N>();
        whole.iter().map(|chunk| read(*chunk)).collect()
    }
}

/// Strings as Triton stores them, each after its length in four bytes.
pub fn packed(texts: &[&[u8]]) -> Vec<u8> {
    let mut data = Vec::with_capacity(texts.iter().map(|text| text.len() + 4).sum());
    for text in texts {
        data.extend_from_slice(&(text.len() as u32).to_le_bytes());
        data.extend_from_slice(text);
    }
    data
}

/// Number of elements of a shape; None for a shape that no tensor can have.
pub fn element_count(shape: &[i64]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |count, size| {
        count.checked_mul(usize::try_from(*size).ok()?)
    })
}
