//! The tensors of a request, one prompt at a time.

use std::collections::HashMap;

use crate::error::Error;
use crate::tokenizer::text_of;
use triton::{DataType, Tensor, elements, packed};

/// All tensors of a request, each of which holds what its shape says for every prompt.
pub struct Fields<'a> {
    found: HashMap<&'a str, Field<'a>>,
    rows: usize,
}

struct Field<'a> {
    tensor: &'a Tensor,
    /// Elements of each prompt.
    each: usize,
    /// All elements of a tensor of strings.
    texts: Vec<&'a [u8]>,
}

impl<'a> Fields<'a> {
    /// Check the tensors; the first dimension of every one counts prompts.
    pub fn new(given: &'a [Tensor], rows: usize) -> Result<Self, Error> {
        let mut found = HashMap::with_capacity(given.len());
        for tensor in given {
            found.insert(tensor.name.as_ref(), Field::new(tensor, rows)?);
        }
        Ok(Self { found, rows })
    }

    /// The prompts' own views.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows).map(|row| Row { fields: self, row })
    }
}

impl<'a> Field<'a> {
    fn new(tensor: &'a Tensor, rows: usize) -> Result<Self, Error> {
        let (name, shape) = (&tensor.name, &tensor.shape);
        if shape.first().is_none_or(|first| *first != rows as i64) {
            return Err(Error::InvalidRequest(format!(
                "{name} has the shape {shape:?} beside {rows} prompts: \
                 send one row for every prompt"
            )));
        }
        let texts = match tensor.kind {
            DataType::Bytes => tensor.strings(),
            _ => Vec::new(),
        };
        let count = elements(shape).filter(|count| match tensor.kind.width() {
            Some(width) => count.checked_mul(width) == Some(tensor.data.len()),
            None => texts.len() == *count,
        });
        let Some(count) = count else {
            return Err(Error::InvalidRequest(format!(
                "{name} has {} bytes, which is not what its shape {shape:?} needs: \
                 send as many elements as the shape says",
                tensor.data.len()
            )));
        };
        Ok(Self {
            tensor,
            each: count / rows.max(1),
            texts,
        })
    }

    /// Bytes of the first `count` elements of one prompt, none where it has fewer.
    fn data(&self, row: usize, count: usize) -> Vec<u8> {
        let start = row * self.each;
        let whole = match self.tensor.kind.width() {
            Some(width) => self
                .tensor
                .data
                .get(start * width..(start + count) * width)
                .map(<[u8]>::to_vec),
            None => self.texts.get(start..start + count).map(packed),
        };
        whole.unwrap_or_default()
    }
}

/// One prompt's part of every tensor.
pub struct Row<'a> {
    fields: &'a Fields<'a>,
    row: usize,
}

impl Row<'_> {
    /// Whether the client sent this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.fields.found.contains_key(name)
    }

    /// Strings, none where the tensor is not given.
    pub fn strings(&self, name: &str) -> Result<Vec<String>, Error> {
        let Some(field) = self.fields.found.get(name) else {
            return Ok(Vec::new());
        };
        if field.tensor.kind != DataType::Bytes {
            return Err(Error::InvalidRequest(format!(
                "{name} is of type {:?}: send text",
                field.tensor.kind
            )));
        }
        let texts = field.texts.iter().skip(self.row * field.each);
        let texts = texts.take(field.each).map(|value| text_of(value, name));
        texts.map(|text| text.map(str::to_owned)).collect()
    }

    /// The first number without its fraction, the default where there is none.
    pub fn number(&self, name: &str, default: i128) -> Result<i128, Error> {
        let Some(one) = self.first(name) else {
            return Ok(default);
        };
        if let Some(value) = one.integers().first() {
            // The tensor gives 64 bits; whether the first of them is a sign, its type says.
            return Ok(match one.kind {
                DataType::Uint64 => i128::from(*value as u64),
                _ => i128::from(*value),
            });
        }
        match one.floats().first() {
            Some(value) if value.is_finite() => Ok(value.trunc() as i128),
            Some(value) => Err(Error::InvalidRequest(format!(
                "{name} is {value}: send a whole number"
            ))),
            None => Err(not_a_number(name)),
        }
    }

    /// As `number`, and refused below `least`.
    pub fn at_least(&self, name: &str, least: i128, default: i128) -> Result<i128, Error> {
        let value = self.number(name, default)?;
        if value < least {
            return Err(Error::InvalidRequest(format!(
                "{name} is {value}: set it to {least} or more"
            )));
        }
        Ok(value)
    }

    /// As `number`, and refused beyond 32 bits.
    pub fn int32(&self, name: &str, default: i32) -> Result<i32, Error> {
        let value = self.number(name, i128::from(default))?;
        i32::try_from(value).map_err(|_| {
            Error::InvalidRequest(format!(
                "{name} is {value}: send a number of 32 bits with a sign"
            ))
        })
    }

    /// Whether the first element is true, which every number but 0 is.
    pub fn flag(&self, name: &str, default: bool) -> bool {
        let Some(one) = self.first(name) else {
            return default;
        };
        match one.kind {
            DataType::Bytes => one.strings().iter().any(|text| !text.is_empty()),
            DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64 => {
                one.floats().iter().any(|value| *value != 0.0)
            }
            _ => one.integers().iter().any(|value| *value != 0),
        }
    }

    /// Numbers with a fraction, none where the tensor is not given.
    pub fn floats(&self, name: &'static str) -> Result<Vec<f32>, Error> {
        let Some(all) = self.flat(name, name) else {
            return Ok(Vec::new());
        };
        Ok(match all.kind {
            DataType::Bytes => return Err(not_a_number(name)),
            DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64 => all.floats(),
            _ => all.integers().iter().map(|value| *value as f32).collect(),
        })
    }

    /// All elements in the client's own type as [1, n] under the engine's name.
    pub fn flat(&self, name: &str, engine: &'static str) -> Option<Tensor> {
        let field = self.fields.found.get(name)?;
        let shape = [1, field.each as i64];
        let data = field.data(self.row, field.each);
        Some(Tensor::new(engine, field.tensor.kind, &shape, data))
    }

    /// All elements in the client's own type and shape under the engine's name, [1, ...].
    pub fn whole(&self, name: &str, engine: &'static str) -> Option<Tensor> {
        let mut tensor = self.flat(name, engine)?;
        let given = &self.fields.found.get(name)?.tensor.shape;
        tensor.shape = given.clone();
        tensor.shape[0] = 1;
        Some(tensor)
    }

    /// The first element alone.
    fn first(&self, name: &str) -> Option<Tensor> {
        let field = self.fields.found.get(name)?;
        let data = (field.each > 0).then(|| field.data(self.row, 1))?;
        Some(Tensor::new("", field.tensor.kind, &[1], data))
    }
}

fn not_a_number(name: &str) -> Error {
    Error::InvalidRequest(format!("{name} is text: send a number"))
}
