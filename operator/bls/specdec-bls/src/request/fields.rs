//! Gives each prompt of a request its own view of the request's tensors.

use std::collections::HashMap;

use crate::error::Error;
use crate::lookup::memory::MAX_SCOPE_BYTES;
use crate::tokenizer::text_of;
use triton::{DataType, Tensor, element_count, packed};

const SCOPE: &str = "lookup_scope";

/// All tensors of a request. Each has a row for every prompt, and as many elements as its shape
/// states.
pub struct Fields<'a> {
    by_name: HashMap<&'a str, Field<'a>>,
    rows: usize,
}

struct Field<'a> {
    tensor: &'a Tensor,
    /// Elements of one prompt.
    per_row: usize,
    /// All elements, if it is a tensor of strings.
    texts: Vec<&'a [u8]>,
}

impl<'a> Fields<'a> {
    /// Check the tensors, whose first dimension is the number of prompts.
    pub fn new(tensors: &'a [Tensor], rows: usize) -> Result<Self, Error> {
        let mut by_name = HashMap::with_capacity(tensors.len());
        for tensor in tensors {
            by_name.insert(tensor.name.as_ref(), Field::new(tensor, rows)?);
        }
        Ok(Self { by_name, rows })
    }

    /// A view for each prompt.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows).map(|row| Row { fields: self, row })
    }
}

impl<'a> Field<'a> {
    fn new(tensor: &'a Tensor, rows: usize) -> Result<Self, Error> {
        let (name, shape) = (&tensor.name, &tensor.shape);
        if shape.first() != Some(&(rows as i64)) {
            return Err(Error::InvalidRequest(format!(
                "{name} has the shape {shape:?} beside {rows} prompts: \
                 send one row for every prompt"
            )));
        }
        let texts = match tensor.kind {
            DataType::Bytes => tensor.strings(),
            _ => Vec::new(),
        };
        let count = element_count(shape).filter(|count| match tensor.kind.width() {
            Some(width) => count.checked_mul(width) == Some(tensor.data.len()),
            None => texts.len() == *count,
        });
        let Some(count) = count else {
            return Err(Error::InvalidRequest(format!(
                "{name} has {} bytes, which is not what its shape {shape:?} needs: \
                 send as many elements as the shape has",
                tensor.data.len()
            )));
        };
        Ok(Self {
            tensor,
            per_row: count / rows.max(1),
            texts,
        })
    }

    /// Bytes of the first `count` elements of one prompt; empty where it has fewer.
    fn data(&self, row: usize, count: usize) -> Vec<u8> {
        let start = row * self.per_row;
        let bytes = match self.tensor.kind.width() {
            Some(width) => self
                .tensor
                .data
                .get(start * width..(start + count) * width)
                .map(<[u8]>::to_vec),
            None => self.texts.get(start..start + count).map(packed),
        };
        bytes.unwrap_or_default()
    }
}

/// One prompt's elements of every tensor.
pub struct Row<'a> {
    fields: &'a Fields<'a>,
    row: usize,
}

impl Row<'_> {
    /// Whether the client sent this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.fields.by_name.contains_key(name)
    }

    /// The strings of a tensor; none where it is missing.
    pub fn strings(&self, name: &str) -> Result<Vec<String>, Error> {
        let Some(field) = self.fields.by_name.get(name) else {
            return Ok(Vec::new());
        };
        if field.tensor.kind != DataType::Bytes {
            return Err(Error::InvalidRequest(format!(
                "{name} is of type {:?}: send text",
                field.tensor.kind
            )));
        }
        let texts = field.texts.iter().skip(self.row * field.per_row);
        let texts = texts.take(field.per_row).map(|value| text_of(value, name));
        texts.map(|text| text.map(str::to_owned)).collect()
    }

    /// The scope of lookups; None where it is missing or empty. A message never repeats it.
    pub fn scope(&self) -> Result<Option<String>, Error> {
        let scope = self.strings(SCOPE)?.into_iter().next();
        let scope = scope.filter(|scope| !scope.is_empty());
        match &scope {
            Some(scope) if scope.len() > MAX_SCOPE_BYTES => Err(Error::InvalidRequest(format!(
                "{SCOPE} has {} bytes, more than the limit of {MAX_SCOPE_BYTES}: use a shorter one",
                scope.len()
            ))),
            _ => Ok(scope),
        }
    }

    /// The first number, rounded toward zero; `default` without one.
    pub fn number(&self, name: &str, default: i128) -> Result<i128, Error> {
        let Some(tensor) = self.first(name) else {
            return Ok(default);
        };
        if let Some(value) = tensor.integers().first() {
            // The value has 64 bits. Its first bit is the sign, unless the tensor is unsigned.
            return Ok(match tensor.kind {
                DataType::Uint64 => i128::from(*value as u64),
                _ => i128::from(*value),
            });
        }
        match tensor.floats().first() {
            Some(value) if value.is_finite() => Ok(value.trunc() as i128),
            Some(value) => Err(Error::InvalidRequest(format!(
                "{name} is {value}: send a whole number"
            ))),
            None => Err(not_a_number(name)),
        }
    }

    /// As `number`. A number below `least` is refused.
    pub fn at_least(&self, name: &str, least: i128, default: i128) -> Result<i128, Error> {
        let value = self.number(name, default)?;
        if value < least {
            return Err(Error::InvalidRequest(format!(
                "{name} is {value}: set it to {least} or more"
            )));
        }
        Ok(value)
    }

    /// As `number`, in 32 bits.
    pub fn int32(&self, name: &str, default: i32) -> Result<i32, Error> {
        let value = self.number(name, i128::from(default))?;
        i32::try_from(value).map_err(|_| {
            Error::InvalidRequest(format!(
                "{name} is {value}: send a number of 32 bits with a sign"
            ))
        })
    }

    /// Whether the first element is true: a number other than 0, or a text that is not empty.
    pub fn flag(&self, name: &str, default: bool) -> bool {
        let Some(tensor) = self.first(name) else {
            return default;
        };
        match tensor.kind {
            DataType::Bytes => tensor.strings().iter().any(|text| !text.is_empty()),
            DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64 => {
                tensor.floats().iter().any(|value| *value != 0.0)
            }
            _ => tensor.integers().iter().any(|value| *value != 0),
        }
    }

    /// The numbers of a tensor; none where it is missing.
    pub fn floats(&self, name: &'static str) -> Result<Vec<f32>, Error> {
        let Some(tensor) = self.flat(name, name) else {
            return Ok(Vec::new());
        };
        Ok(match tensor.kind {
            DataType::Bytes => return Err(not_a_number(name)),
            DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64 => tensor.floats(),
            _ => tensor
                .integers()
                .iter()
                .map(|value| *value as f32)
                .collect(),
        })
    }

    /// All elements as [1, n] in the client's type, renamed to the engine's input.
    pub fn flat(&self, name: &str, engine: &'static str) -> Option<Tensor> {
        let field = self.fields.by_name.get(name)?;
        let shape = [1, field.per_row as i64];
        let data = field.data(self.row, field.per_row);
        Some(Tensor::new(engine, field.tensor.kind, &shape, data))
    }

    /// All elements as [1, ...] in the client's type and shape, renamed to the engine's input.
    pub fn whole(&self, name: &str, engine: &'static str) -> Option<Tensor> {
        let mut tensor = self.flat(name, engine)?;
        let shape = &self.fields.by_name.get(name)?.tensor.shape;
        tensor.shape = [1]
            .into_iter()
            .chain(shape.iter().skip(1).copied())
            .collect();
        Some(tensor)
    }

    /// The first element; None for a missing tensor or one without elements.
    fn first(&self, name: &str) -> Option<Tensor> {
        let field = self.fields.by_name.get(name)?;
        let data = (field.per_row > 0).then(|| field.data(self.row, 1))?;
        Some(Tensor::new("", field.tensor.kind, &[1], data))
    }
}

fn not_a_number(name: &str) -> Error {
    Error::InvalidRequest(format!("{name} is text: send a number"))
}
