//! Tokens of an answer as the text and figures that its client gets.

use std::sync::Arc;

use crate::chunk::Chunk;
use crate::part::Part;
use crate::task::Task;
use crate::text::{self, Detokenizer, StopText};
use crate::tokenizer::Tokenizer;

/// One task's answer as text.
pub struct Rendering {
    task: Arc<Task>,
    detokenizer: Detokenizer,
    stop: Option<StopText>,
    stopped: bool,
    /// Characters of the last token that lie behind a stop word.
    surplus: usize,
    part: Part,
    tokens: Vec<i32>,
    log_probs: Vec<f32>,
}

impl Rendering {
    pub fn new(task: Arc<Task>) -> Self {
        let stop = (!task.stop_texts.is_empty()).then(|| StopText::new(&task.stop_texts));
        Self {
            task,
            detokenizer: Detokenizer::default(),
            stop,
            stopped: false,
            surplus: 0,
            part: Part::default(),
            tokens: Vec::new(),
            log_probs: Vec::new(),
        }
    }

    /// Whether the text may end the answer, so that nothing may be asked for before it is known.
    pub fn decides_the_end(&self) -> bool {
        self.stop.is_some()
    }

    /// Whether a stop word has ended the answer.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Take in a chunk, up to the end of the answer; the part that a stream brings now.
    pub fn take(&mut self, chunk: &Chunk, tokenizer: &dyn Tokenizer) -> Option<Part> {
        let (kept, text) = if self.stop.is_some() {
            self.until_stop(&chunk.tokens, tokenizer)
        } else if self.task.stream {
            let text = self.detokenizer.push(tokenizer, &chunk.tokens);
            (chunk.tokens.len(), text)
        } else {
            (chunk.tokens.len(), String::new())
        };
        self.add(chunk, kept, text);
        self.tokens.extend_from_slice(&chunk.tokens[..kept]);
        self.log_probs.extend_from_slice(&self.part.log_probs);
        self.task.stream.then(|| self.part.clone())
    }

    /// The last part: the whole answer, or what a stream has held back, if anything.
    pub fn rest(&mut self, tokenizer: &dyn Tokenizer) -> Option<Part> {
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
        self.add(&Chunk::default(), 0, rest);
        Some(self.part.clone())
    }

    fn until_stop(&mut self, tokens: &[i32], tokenizer: &dyn Tokenizer) -> (usize, String) {
        // Token by token: a stop word may end inside a token that is not the chunk's last.
        let mut text = String::new();
        for (index, token) in tokens.iter().enumerate() {
            let piece = self.detokenizer.push(tokenizer, &[*token]);
            match self.stop.as_mut().and_then(|stop| stop.cut(&piece)) {
                Some(cut) => {
                    self.stopped = true;
                    // A character that this token begins decodes to something as well.
                    self.surplus = piece.chars().count() - cut + self.detokenizer.held;
                    text.push_str(text::head(&piece, cut));
                    return (index + 1, text);
                }
                None => text.push_str(&piece),
            }
        }
        (tokens.len(), text)
    }

    fn add(&mut self, chunk: &Chunk, kept: usize, text: String) {
        let log_probs = &chunk.log_probs[..kept.min(chunk.log_probs.len())];
        let sum: f64 = log_probs.iter().copied().map(f64::from).sum();
        self.part = Part {
            text,
            tokens: kept,
            log_probs: log_probs.to_vec(),
            cum_log_prob: self.part.cum_log_prob + sum,
            drafted: self.part.drafted + chunk.drafted,
            accepted: self.part.accepted + chunk.accepted,
            rounds: self.part.rounds + chunk.rounds,
            extras: chunk.extras.clone(),
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
            text: text::without_last(&text, self.surplus).to_owned(),
            tokens: self.tokens.len(),
            log_probs: std::mem::take(&mut self.log_probs),
            ..self.part.clone()
        }
    }
}
