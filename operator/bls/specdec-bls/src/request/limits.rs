//! Limits of a request's text, checked before any of it is tokenized.

use crate::error::Error;
use triton::{DataType, Tensor, element_count};

const PROMPT: &str = "text_input";
const LISTS: [&str; 3] = ["stop_words", "bad_words", "embedding_bias_words"];

/// Limit of a prompt in bytes, if the longest sequence or the longest token is unknown. It is about
/// a quarter of a million tokens of English.
const DEFAULT_LIMIT: usize = 1 << 20;
/// Smallest limit of a prompt in bytes. Tokenizing this much text takes milliseconds, and after
/// that, `request` checks the number of tokens.
const LEAST_LIMIT: usize = 64 << 10;
/// Most items of one list. Each item is tokenized, sent with each engine call and compared with
/// each token. Public interfaces accept between 4 and a few hundred items.
const MAX_ITEMS: usize = 1024;
/// Most bytes of all items of one list together.
const MAX_ITEM_BYTES: usize = 64 << 10;
/// Most bytes of text of a short request.
const MAX_SHORT: usize = 32 << 10;

/// The limits of one server. Those of the lists are constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    prompt: usize,
}

impl Limits {
    /// Limits for sequences of at most `max_seq_len` tokens, each of at most `bytes_per_token`
    /// bytes of text; 0 where either is unknown.
    pub fn new(max_seq_len: usize, bytes_per_token: usize) -> Self {
        let prompt = match max_seq_len.saturating_mul(bytes_per_token) {
            0 => DEFAULT_LIMIT,
            most => most.max(LEAST_LIMIT),
        };
        Self { prompt }
    }

    /// Check a request's tensors: their sizes and the lengths of their strings.
    ///
    /// # Errors
    /// A prompt or a list exceeds its limit.
    pub fn check(&self, given: &[Tensor]) -> Result<(), Error> {
        for tensor in given {
            self.check_size(&tensor.name, &tensor.shape, tensor.data.len())?;
            if tensor.name == PROMPT && tensor.kind == DataType::Bytes {
                for text in tensor.strings() {
                    self.check_prompt(text.len())?;
                }
            }
        }
        Ok(())
    }

    /// Check one tensor by its shape and its size, before its data is read.
    ///
    /// # Errors
    /// A list exceeds its limit, or the average prompt does.
    pub fn check_size(&self, name: &str, shape: &[i64], bytes: usize) -> Result<(), Error> {
        let items = element_count(shape).unwrap_or(usize::MAX);
        let text = text_bytes(items, bytes);
        if name == PROMPT && text > self.prompt.saturating_mul(items.max(1)) {
            return self.check_prompt(text);
        }
        let Some(name) = LISTS.iter().find(|list| **list == name) else {
            return Ok(());
        };
        if items > MAX_ITEMS {
            return Err(Error::InvalidRequest(format!(
                "{name} has {items} items, more than the limit of {MAX_ITEMS} in a request: \
                 send fewer"
            )));
        }
        if text > MAX_ITEM_BYTES {
            return Err(Error::InvalidRequest(format!(
                "{name} has {text} bytes, more than the limit of {MAX_ITEM_BYTES} in a request: \
                 send fewer or shorter items"
            )));
        }
        Ok(())
    }

    fn check_prompt(&self, bytes: usize) -> Result<(), Error> {
        if bytes <= self.prompt {
            return Ok(());
        }
        Err(Error::InvalidRequest(format!(
            "{PROMPT} has {bytes} bytes, more than the limit of {} for a prompt: \
             send a shorter prompt",
            self.prompt
        )))
    }
}

/// Bytes of a tensor that will be tokenized: `bytes`, or 0 for a tensor that is not tokenized.
pub fn tokenized_bytes(name: &str, bytes: usize) -> usize {
    if name == PROMPT || LISTS.contains(&name) {
        bytes
    } else {
        0
    }
}

/// Whether this much text takes so long to tokenize that shorter requests must not wait for it.
pub fn is_long(bytes: usize) -> bool {
    bytes > MAX_SHORT
}

/// Bytes of a tensor's strings without their lengths of four bytes each.
fn text_bytes(items: usize, bytes: usize) -> usize {
    bytes.saturating_sub(items.saturating_mul(4))
}
