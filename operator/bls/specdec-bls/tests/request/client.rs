//! Builds requests as a client sends them, and a tokenizer with a token for every character.

use triton::{DataType, Tensor, packed};
use triton_specdec::error::Error;
use triton_specdec::request::task::Task;
use triton_specdec::request::{Capabilities, Parsed, parse};
use triton_specdec::tokenizer::Tokenizer;

/// A tokenizer of 96 characters. It refuses the bell character.
pub struct Letters;

impl Tokenizer for Letters {
    fn encode(&self, text: &str) -> Result<Vec<i32>, Error> {
        match text.contains('\u{7}') {
            true => Err(Error::InvalidRequest("text_input has a bell".to_owned())),
            false => Ok(text.chars().map(|item| item as i32 % 96).collect()),
        }
    }

    fn decode(&self, ids: &[i32]) -> String {
        ids.iter()
            .filter_map(|id| char::from_u32(*id as u32))
            .collect()
    }

    fn encode_word(&self, word: &str) -> Result<Vec<i32>, Error> {
        self.encode(word)
    }

    fn end_id(&self) -> i32 {
        90
    }

    fn pad_id(&self) -> i32 {
        91
    }

    fn size(&self) -> usize {
        96
    }
}

/// A server with a draft: four draft tokens by default, eight at most.
pub fn server() -> Capabilities {
    Capabilities {
        draft_tokens: 4,
        max_draft_tokens: 8,
        max_seq_len: 512,
        drafts: true,
        has_draft_model: true,
        streams: true,
        use_draft_logits: false,
        min_tokens_name: "min_length",
        target_outputs: vec!["acceptance_rate".to_owned(), "arrival_time_ns".to_owned()],
    }
}

/// Strings, [rows, n].
pub fn texts(name: &'static str, rows: &[&[&str]]) -> Tensor {
    let flat: Vec<&[u8]> = rows
        .iter()
        .flat_map(|row| row.iter().map(|t| t.as_bytes()))
        .collect();
    let shape = [rows.len() as i64, (flat.len() / rows.len()) as i64];
    Tensor::new(name, DataType::Bytes, &shape, packed(&flat))
}

pub fn int(name: &'static str, value: i32) -> Tensor {
    Tensor::scalar(name, value)
}

pub fn float(name: &'static str, value: f32) -> Tensor {
    Tensor::fp32(name, &[1, 1], &[value])
}

/// An unsigned integer of 64 bits in the shape [1], which has only the batch dimension.
pub fn long(name: &'static str, value: u64) -> Tensor {
    Tensor::new(name, DataType::Uint64, &[1], value.to_le_bytes().to_vec())
}

/// A boolean in the same shape.
pub fn flag(name: &'static str, value: bool) -> Tensor {
    Tensor::new(name, DataType::Bool, &[1], vec![u8::from(value)])
}

/// The tensors of a request, which generates eight tokens after `ab` unless `more` replaces that.
pub fn request(more: Vec<Tensor>) -> Vec<Tensor> {
    let mut given = more;
    for default in [texts("text_input", &[&["ab"]]), int("max_tokens", 8)] {
        if given.iter().all(|tensor| tensor.name != default.name) {
            given.push(default);
        }
    }
    given
}

pub fn try_parse(more: Vec<Tensor>, server: &Capabilities) -> Result<Parsed, Error> {
    parse(&request(more), server, &Letters)
}

/// The task of a request for one prompt, and the reason of its fallback.
pub fn parse_one(more: Vec<Tensor>, server: &Capabilities) -> (Task, &'static str) {
    let mut parsed = try_parse(more, server).expect("a request that can be served");
    assert_eq!(parsed.tasks.len(), 1);
    (parsed.tasks.remove(0), parsed.fallback)
}

pub fn task(more: Vec<Tensor>) -> Task {
    parse_one(more, &server()).0
}

pub fn named<'a>(tensors: &'a [Tensor], name: &str) -> Option<&'a Tensor> {
    tensors.iter().find(|item| item.name == name)
}
