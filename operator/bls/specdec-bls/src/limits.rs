//! How much text a request may bring, which is known before any of it becomes tokens.

use crate::error::Error;
use triton::{DataType, Tensor, elements};

const PROMPT: &str = "text_input";
const WORDS: [&str; 3] = ["stop_words", "bad_words", "embedding_bias_words"];

/// Bytes of a prompt where the longest sequence or the longest token is unknown: about a quarter
/// of a million tokens of English.
const UNKNOWN: usize = 1 << 20;
/// No prompt of fewer bytes is refused: encoding it takes milliseconds, and the engine counts
/// its tokens.
const LEAST: usize = 64 << 10;
/// Items of one list of a request. Every item is encoded, sent with every call of the engines and
/// matched with every token; public interfaces take 4 to some hundred.
const MOST_ITEMS: usize = 1024;
/// Bytes of all items of such a list.
const MOST_ITEM_BYTES: usize = 64 << 10;
/// Requests with more text than this count as long.
const LONG: usize = 32 << 10;

/// The limits of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    prompt: usize,
}

impl Limits {
    /// For sequences of so many tokens, each of which stands for so many bytes of text at most;
    /// 0 where either is unknown.
    pub fn new(max_seq_len: usize, bytes_per_token: usize) -> Self {
        let prompt = match max_seq_len.saturating_mul(bytes_per_token) {
            0 => UNKNOWN,
            most => most.max(LEAST),
        };
        Self { prompt }
    }

    /// Refuse a request's tensors by their sizes and their strings' lengths.
    ///
    /// # Errors
    /// A prompt or a list beyond its limit: one sentence.
    pub fn check(&self, given: &[Tensor]) -> Result<(), Error> {
        for tensor in given {
            self.size(&tensor.name, &tensor.shape, tensor.data.len())?;
            if tensor.name == PROMPT && tensor.kind == DataType::Bytes {
                for text in tensor.strings() {
                    self.prompt(text.len())?;
                }
            }
        }
        Ok(())
    }

    /// Refuse a tensor of which no more is known than its shape and its bytes.
    ///
    /// # Errors
    /// As `check`; a request of several prompts is refused for what they have together.
    pub fn size(&self, name: &str, shape: &[i64], bytes: usize) -> Result<(), Error> {
        let items = elements(shape).unwrap_or(usize::MAX);
        let text = text_bytes(items, bytes);
        if name == PROMPT && text > self.prompt.saturating_mul(items.max(1)) {
            return self.prompt(text);
        }
        let Some(name) = WORDS.iter().find(|one| **one == name) else {
            return Ok(());
        };
        if items > MOST_ITEMS {
            return Err(Error::InvalidRequest(format!(
                "{name} has {items} items, more than the limit of {MOST_ITEMS} in a request: \
                 send fewer"
            )));
        }
        if text > MOST_ITEM_BYTES {
            return Err(Error::InvalidRequest(format!(
                "{name} has {text} bytes, more than the limit of {MOST_ITEM_BYTES} in a request: \
                 send fewer or shorter items"
            )));
        }
        Ok(())
    }

    fn prompt(&self, bytes: usize) -> Result<(), Error> {
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

/// Bytes of a tensor that would be encoded.
pub fn encoded(name: &str, bytes: usize) -> usize {
    if name == PROMPT || WORDS.contains(&name) {
        bytes
    } else {
        0
    }
}

/// Whether so many bytes take so long to encode that shorter requests must not wait for them.
pub fn is_long(bytes: usize) -> bool {
    bytes > LONG
}

/// Bytes of a tensor's strings, each of which has its length in four bytes before it.
fn text_bytes(items: usize, bytes: usize) -> usize {
    bytes.saturating_sub(items.saturating_mul(4))
}
