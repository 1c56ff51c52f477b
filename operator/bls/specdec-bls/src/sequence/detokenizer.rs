//! Decodes a growing list of tokens into pieces of text, and finds stop words in them.
//!
//! The pieces, joined, are the text of all tokens. A stream therefore sends each piece once.
//!
//! All lengths here count characters (Unicode scalar values), never bytes.

use super::stop_words::Matcher;
use crate::tokenizer::Tokenizer;

/// Number of tokens that stay when older ones are dropped. Every push decodes the tokens that were
/// not dropped: in a long answer at least this many, and at most about twice as many. No decoder
/// needs more earlier tokens to place its spaces. Because their number is limited, the cost of a
/// token does not grow with the answer.
const WINDOW: usize = 32;

/// The first `count` characters of a text.
pub fn first_chars(text: &str, count: usize) -> &str {
    text.split_at(byte_of(text, count)).0
}

/// A text after its first `count` characters.
pub fn after_chars(text: &str, count: usize) -> &str {
    text.split_at(byte_of(text, count)).1
}

/// A text without its last `count` characters.
pub fn without_last_chars(text: &str, count: usize) -> &str {
    first_chars(text, text.chars().count().saturating_sub(count))
}

/// The byte at which the text after `count` characters begins; the end of a shorter text.
fn byte_of(text: &str, count: usize) -> usize {
    text.char_indices()
        .nth(count)
        .map_or(text.len(), |(byte, _)| byte)
}

/// Incremental decoding that never cuts a character.
///
/// A token may end in the middle of a UTF-8 sequence. It decodes to a replacement character until
/// the rest arrives, so such an end is held back.
#[derive(Clone, Debug, Default)]
pub struct Detokenizer {
    ids: Vec<i32>,
    /// Characters of the text of `ids` that were returned.
    returned: usize,
    /// Characters at the end of that text that are held back.
    pub held: usize,
}

impl Detokenizer {
    /// Add tokens. Returns the text that they complete, which may be empty.
    pub fn push(&mut self, tokenizer: &dyn Tokenizer, tokens: &[i32]) -> String {
        self.ids.extend_from_slice(tokens);
        let text = tokenizer.decode(&self.ids);
        let complete = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let length = complete.chars().count();
        self.held = text.chars().count() - length;
        if length <= self.returned {
            return String::new();
        }
        let new = after_chars(complete, self.returned).to_owned();
        self.returned = length;
        if self.held == 0 && self.ids.len() > 2 * WINDOW {
            self.ids.drain(..self.ids.len() - WINDOW);
            self.returned = tokenizer.decode(&self.ids).chars().count();
        }
        new
    }

    /// The text that was held back. No token may follow.
    pub fn flush(&mut self, tokenizer: &dyn Tokenizer) -> String {
        let text = tokenizer.decode(&self.ids);
        let rest = after_chars(&text, self.returned).to_owned();
        self.returned = text.chars().count();
        rest
    }
}

/// Finds stop words in a growing text, also those that begin in an earlier piece.
#[derive(Clone, Debug)]
pub struct StopText(Option<Matcher>);

impl StopText {
    /// A search for these stop words. Empty ones are ignored.
    pub fn new(stop_words: &[String]) -> Self {
        Self(Matcher::new(stop_words))
    }

    /// Characters of `piece` up to the end of the first stop word in it; None without one.
    pub fn find(&mut self, piece: &str) -> Option<usize> {
        let matcher = self.0.as_mut()?;
        let last = piece.bytes().position(|byte| matcher.step(byte))?;
        // A stop word ends at the end of a character.
        let characters = piece.char_indices();
        Some(characters.take_while(|(byte, _)| *byte <= last).count())
    }
}
