//! Turns the tokens of a sequence into the parts that its client receives.

use std::sync::Arc;

use super::chunk::Chunk;
use super::detokenizer::{Detokenizer, StopText, first_chars, without_last_chars};
use super::part::Part;
use super::statistics::combined;
use crate::request::task::Task;
use crate::tokenizer::Tokenizer;

/// The text of one sequence while it grows.
pub struct Rendering {
    task: Arc<Task>,
    detokenizer: Detokenizer,
    stop_text: Option<StopText>,
    stopped: bool,
    /// Characters after the stop word in the text of the tokens. A whole answer omits them.
    surplus: usize,
    /// The last part; its sums cover the answer so far.
    part: Part,
    tokens: Vec<i32>,
    log_probs: Vec<f32>,
}

impl Rendering {
    pub fn new(task: Arc<Task>) -> Self {
        let stop_text = (!task.stop_texts.is_empty()).then(|| StopText::new(&task.stop_texts));
        Self {
            task,
            detokenizer: Detokenizer::default(),
            stop_text,
            stopped: false,
            surplus: 0,
            part: Part::default(),
            tokens: Vec::new(),
            log_probs: Vec::new(),
        }
    }

    /// Whether a stop word may end the sequence. If so, the next call has to wait for the text.
    pub fn may_end_sequence(&self) -> bool {
        self.stop_text.is_some()
    }

    /// Whether a stop word has ended the sequence.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Add tokens up to a stop word. Returns the part for the client of a stream.
    pub fn add(&mut self, chunk: &Chunk, tokenizer: &dyn Tokenizer) -> Option<Part> {
        let (kept, text) = if self.stop_text.is_some() {
            self.until_stop_word(&chunk.tokens, tokenizer)
        } else if self.task.stream {
            let text = self.detokenizer.push(tokenizer, &chunk.tokens);
            (chunk.tokens.len(), text)
        } else {
            (chunk.tokens.len(), String::new())
        };
        self.update_part(chunk, kept, text);
        self.tokens.extend(chunk.tokens.iter().take(kept));
        self.log_probs.extend_from_slice(&self.part.log_probs);
        self.task.stream.then(|| self.part.clone())
    }

    /// The last part: the whole answer, or the text that a stream held back, if there is any.
    pub fn last(&mut self, tokenizer: &dyn Tokenizer) -> Option<Part> {
        if !self.task.stream {
            return Some(self.whole(tokenizer));
        }
        if self.stopped {
            return None;
        }
        let rest = self.detokenizer.flush(tokenizer);
        if rest.is_empty() {
            return None;
        }
        self.update_part(&Chunk::default(), 0, rest);
        Some(self.part.clone())
    }

    /// Number of tokens up to a stop word, and their text.
    fn until_stop_word(&mut self, tokens: &[i32], tokenizer: &dyn Tokenizer) -> (usize, String) {
        // Token by token: a stop word may end inside a token that is not the last one.
        let mut text = String::new();
        for (index, token) in tokens.iter().enumerate() {
            let piece = self.detokenizer.push(tokenizer, &[*token]);
            match self.stop_text.as_mut().and_then(|stop| stop.find(&piece)) {
                Some(end) => {
                    self.stopped = true;
                    // A character that this token begins but does not complete decodes to a
                    // replacement character, which is surplus as well.
                    self.surplus = piece.chars().count() - end + self.detokenizer.held;
                    text.push_str(first_chars(&piece, end));
                    return (index + 1, text);
                }
                None => text.push_str(&piece),
            }
        }
        (tokens.len(), text)
    }

    fn update_part(&mut self, chunk: &Chunk, kept: usize, text: String) {
        let log_probs: Vec<f32> = chunk.log_probs.iter().copied().take(kept).collect();
        let sum: f64 = log_probs.iter().copied().map(f64::from).sum();
        let mut histogram = std::mem::take(&mut self.part.histogram);
        if chunk.rounds > 0 {
            histogram.resize(histogram.len().max(chunk.accepted + 1), 0);
            if let Some(steps) = histogram.get_mut(chunk.accepted) {
                *steps += 1;
            }
        }
        self.part = Part {
            text,
            tokens: kept,
            log_probs,
            cum_log_prob: self.part.cum_log_prob + sum,
            drafted: self.part.drafted + chunk.drafted,
            accepted: self.part.accepted + chunk.accepted,
            rounds: self.part.rounds + chunk.rounds,
            histogram,
            outputs: combined(std::mem::take(&mut self.part.outputs), &chunk.outputs),
        };
    }

    fn whole(&mut self, tokenizer: &dyn Tokenizer) -> Part {
        let mut ids = Vec::new();
        if !self.task.exclude_input {
            ids.extend_from_slice(&self.task.prompt);
        }
        ids.extend_from_slice(&self.tokens);
        let text = tokenizer.decode(&ids);
        Part {
            text: without_last_chars(&text, self.surplus).to_owned(),
            tokens: self.tokens.len(),
            log_probs: std::mem::take(&mut self.log_probs),
            ..self.part.clone()
        }
    }
}
