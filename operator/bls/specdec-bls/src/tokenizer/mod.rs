//! Converts text to token ids and back.
//!
//! [`HubTokenizer`] reads the tokenizer of a Hugging Face directory. It gives the same tokens as
//! the text models: the Triton models `preprocessing` and `postprocessing`, written in Python.

use triton::Tensor;

use crate::error::Error;

mod files;
mod hub;
mod longest;

pub use hub::{HubTokenizer, Special};

/// Encodes prompts and word lists, and decodes answers.
pub trait Tokenizer: Send + Sync {
    /// Token ids of a prompt.
    fn encode(&self, text: &str) -> Result<Vec<i32>, Error>;

    /// Token ids of a stop, bad or biased word, without special tokens.
    fn encode_word(&self, word: &str) -> Result<Vec<i32>, Error>;

    /// Text of token ids; ids outside the vocabulary have no text.
    fn decode(&self, ids: &[i32]) -> String;

    /// The token that ends an answer, -1 for none.
    fn end_id(&self) -> i32;

    /// The padding token; the end token where there is none.
    fn pad_id(&self) -> i32;

    /// Number of token ids, added tokens included.
    fn size(&self) -> usize;

    /// Most bytes of text of one token, 0 where unknown.
    fn bytes_per_token(&self) -> usize {
        0
    }

    /// Token ids of each word of a list, without special tokens. Empty items are left out.
    fn encode_list(&self, list: &[String]) -> Result<Vec<Vec<i32>>, Error> {
        let mut tokens = Vec::with_capacity(list.len());
        for word in list.iter().filter(|word| !word.is_empty()) {
            let ids = self.encode_word(word)?;
            if !ids.is_empty() {
                tokens.push(ids);
            }
        }
        Ok(tokens)
    }

    /// The weight of every token of the vocabulary. A word adds its weight to each of its tokens.
    ///
    /// # Errors
    /// The lists differ in length, or a token is outside of the vocabulary.
    fn bias(&self, list: &[String], weights: &[f32]) -> Result<Vec<f32>, Error> {
        if list.len() != weights.len() {
            return Err(Error::InvalidRequest(format!(
                "embedding_bias_words has {} words and embedding_bias_weights {} weights: \
                 send one weight for every word",
                list.len(),
                weights.len()
            )));
        }
        let mut bias = vec![0.0; self.size()];
        for (word, weight) in list.iter().zip(weights) {
            for token in self.encode_word(word)? {
                let index = usize::try_from(token).ok();
                let Some(entry) = index.and_then(|index| bias.get_mut(index)) else {
                    return Err(Error::InvalidRequest(format!(
                        "embedding_bias_words has {word:?}, whose token {token} lies outside of \
                         the vocabulary of {}: leave that word out",
                        self.size()
                    )));
                };
                *entry += weight;
            }
        }
        Ok(bias)
    }
}

/// A word list in the engines' form, [1, 2, n]: a row with all ids, and a row with the end offset
/// of each word, padded with -1.
pub fn word_array(name: &'static str, list: &[Vec<i32>]) -> Tensor {
    let mut values = list.concat();
    let width = values.len();
    let mut end = 0;
    for word in list.iter().filter(|word| !word.is_empty()) {
        end += word.len() as i32;
        values.push(end);
    }
    values.resize(2 * width, -1);
    Tensor::int32(name, &[1, 2, width as i64], &values)
}

/// A string element as text.
///
/// # Errors
/// Bytes that are not UTF-8.
pub fn text_of<'a>(bytes: &'a [u8], field: &str) -> Result<&'a str, Error> {
    std::str::from_utf8(bytes).map_err(|error| {
        Error::InvalidRequest(format!(
            "{field} is not UTF-8 at byte {}: send UTF-8 text",
            error.valid_up_to()
        ))
    })
}

/// A boolean parameter: true, unless its value means false.
pub fn is_true(value: &str) -> bool {
    let word = value.trim().to_lowercase();
    !["false", "0", "f", "n", "no"].contains(&word.as_str())
}
