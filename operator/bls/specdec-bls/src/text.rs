//! Turns growing token lists into text that concatenates to exactly the text of the whole.
//!
//! All lengths here count characters (Unicode scalar values), never bytes.

use crate::matcher::Matcher;
use crate::tokenizer::Tokenizer;

/// Tokens decoded again on every push. Enough that no decoder looks further back for its spacing,
/// small enough that a long answer costs no more per token than a short one.
const WINDOW: usize = 32;

/// The first `count` characters of a text.
pub fn head(text: &str, count: usize) -> &str {
    text.split_at(place(text, count)).0
}

/// A text behind its first `count` characters.
pub fn behind(text: &str, count: usize) -> &str {
    text.split_at(place(text, count)).1
}

/// A text without its last `count` characters.
pub fn without_last(text: &str, count: usize) -> &str {
    head(text, text.chars().count().saturating_sub(count))
}

/// Byte at which the character number `count` begins; the end where there are fewer.
fn place(text: &str, count: usize) -> usize {
    text.char_indices()
        .nth(count)
        .map_or(text.len(), |(byte, _)| byte)
}

/// Incremental decoding that never cuts a character.
///
/// A token may end in the middle of a UTF-8 sequence, which decodes to a replacement character
/// until the rest arrives; such a tail is held back.
#[derive(Clone, Debug, Default)]
pub struct Detokenizer {
    ids: Vec<i32>,
    /// Characters of what `ids` decode to that were given out.
    sent: usize,
    /// Characters at the end of the tokens' decoding that were not given out yet.
    pub held: usize,
}

impl Detokenizer {
    /// Text that these tokens complete, possibly none.
    pub fn push(&mut self, tokenizer: &dyn Tokenizer, tokens: &[i32]) -> String {
        self.ids.extend_from_slice(tokens);
        let text = tokenizer.decode(&self.ids);
        let complete = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        self.held = text[complete.len()..].chars().count();
        let length = complete.chars().count();
        if length <= self.sent {
            return String::new();
        }
        let new = behind(complete, self.sent).to_owned();
        self.sent = length;
        if self.held == 0 && self.ids.len() > 2 * WINDOW {
            self.ids.drain(..self.ids.len() - WINDOW);
            self.sent = tokenizer.decode(&self.ids).chars().count();
        }
        new
    }

    /// What was held back, when no token follows.
    pub fn flush(&mut self, tokenizer: &dyn Tokenizer) -> String {
        let text = tokenizer.decode(&self.ids);
        let rest = behind(&text, self.sent).to_owned();
        self.sent = text.chars().count();
        rest
    }
}

/// Finds stop words in growing text, also those that begin in earlier pieces.
#[derive(Clone, Debug)]
pub struct StopText(Option<Matcher>);

impl StopText {
    /// Looks for these words; empty ones are ignored.
    pub fn new(words: &[String]) -> Self {
        Self(Matcher::new(words))
    }

    /// Characters of `piece` up to the end of the first stop word in it, None without one.
    pub fn cut(&mut self, piece: &str) -> Option<usize> {
        let matcher = self.0.as_mut()?;
        // Words end where characters do.
        let last = piece.bytes().position(|byte| matcher.step(byte))?;
        Some(piece[..=last].chars().count())
    }
}
