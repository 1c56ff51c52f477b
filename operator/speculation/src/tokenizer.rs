//! One tokenizer for every text model, so that all of them turn text into the same tokens.

use std::str;

use crate::tensor::Tensor;

/// Text or a tokenizer directory that cannot be used; one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError(pub String);

/// Text to token ids and back.
pub trait Tokenizer: Send + Sync {
    /// Token ids of a prompt.
    fn encode(&self, text: &str) -> Result<Vec<i32>, TextError>;
    /// Text of token ids; ids outside the vocabulary stand for nothing.
    fn decode(&self, ids: &[i32]) -> String;
    /// Token ids of stop or bad words, without special tokens; empty words are left out.
    fn words(&self, words: &[String]) -> Result<Vec<Vec<i32>>, TextError>;
    /// Weight of every token of the vocabulary: a word's weight goes to each of its tokens.
    fn bias(&self, words: &[String], weights: &[f32]) -> Result<Vec<f32>, TextError>;
    /// The token that ends an answer, -1 for none.
    fn end_id(&self) -> i32;
    /// The token that fills, -1 for none.
    fn pad_id(&self) -> i32;
    /// Number of token ids, added tokens included.
    fn size(&self) -> usize;
}

/// A string element as text.
pub fn text_of(value: &[u8], field: &str) -> Result<String, TextError> {
    match str::from_utf8(value) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => Err(TextError(format!(
            "{field} is not UTF-8 at byte {}: send UTF-8 text",
            error.valid_up_to()
        ))),
    }
}

/// Word list as the engines take it: [1, 2, n], row 0 all ids, row 1 end offsets, then -1.
pub fn word_array(name: &'static str, words: &[Vec<i32>]) -> Tensor {
    let mut values = words.concat();
    let count = values.len();
    let mut end = 0;
    values.extend(words.iter().map(|word| {
        end += word.len() as i32;
        end
    }));
    values.resize(2 * count, -1);
    Tensor::int32(name, &[1, 2, count as i64], &values)
}
