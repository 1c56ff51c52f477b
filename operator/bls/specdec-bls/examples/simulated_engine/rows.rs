//! The rows of a call, and the responses that the engine sends for them.

use std::sync::{Arc, Mutex};

use triton::{Level, Request, Tensor, log};

use super::language::Language;
use super::lock;

/// A call, which all of its rows share.
struct Call {
    request: Mutex<Option<Request>>,
    pending: Mutex<usize>,
}

/// A row of a call in flight.
pub struct Row {
    call: Arc<Call>,
    index: i32,
    /// The tokens that its steps return.
    new: Vec<i32>,
    /// Their log probabilities, if the call requests them.
    log_probs: Option<Vec<f32>>,
    /// The prefix of its only response; None if each step sends a response.
    prefix: Option<Vec<i32>>,
    /// Steps that are left.
    pub steps: u32,
}

/// A response for a row.
pub struct Answer {
    call: Arc<Call>,
    outputs: Vec<Tensor>,
    is_last: bool,
}

impl Row {
    /// Compute a step; the response to send after it, if any.
    pub fn step(&mut self) -> Option<Answer> {
        self.steps -= 1;
        let is_last = self.steps == 0;
        let tokens = match &self.prefix {
            Some(prefix) if is_last => [prefix.as_slice(), &self.new].concat(),
            Some(_) => return None,
            None => {
                let token = self.new.len().checked_sub(self.steps as usize + 1);
                let token = token.and_then(|index| self.new.get(index));
                token.copied().into_iter().collect()
            }
        };
        let length = tokens.len();
        let mut outputs = vec![
            Tensor::int32("output_ids", &[1, 1, length as i64], &tokens),
            Tensor::scalar("sequence_length", length as i32),
            Tensor::scalar("batch_index", self.index),
        ];
        if let Some(values) = &self.log_probs {
            let shape = [1, 1, values.len() as i64];
            outputs.push(Tensor::fp32("output_log_probs", &shape, values));
        }
        Some(self.answer(outputs, is_last))
    }

    /// Whether each step sends a response.
    pub fn is_streamed(&self) -> bool {
        self.prefix.is_none()
    }

    pub fn is_cancelled(&self) -> bool {
        let request = lock(&self.call.request);
        request.as_ref().is_some_and(Request::is_cancelled)
    }

    /// The response of a row that was cancelled.
    pub fn end(&self) -> Answer {
        self.answer(Vec::new(), true)
    }

    fn answer(&self, outputs: Vec<Tensor>, is_last: bool) -> Answer {
        Answer {
            call: Arc::clone(&self.call),
            outputs,
            is_last,
        }
    }
}

impl Answer {
    pub fn send(self) {
        let mut pending = lock(&self.call.pending);
        *pending -= usize::from(self.is_last);
        let is_final = *pending == 0;
        let mut request = lock(&self.call.request);
        let sent = request.as_ref().map(|it| match self.outputs.is_empty() {
            true if is_final => it.send_end(),
            true => Ok(()),
            false => it.send(&self.outputs, is_final),
        });
        if let Some(Err(error)) = sent {
            log(Level::Error, &error.message);
        }
        if is_final && let Some(request) = request.take() {
            request.release(true);
        }
    }
}

/// The rows of a request, with the tokens that they will return.
pub fn rows(request: Request, language: &Language) -> Vec<Row> {
    let tensors = request.tensors().unwrap_or_default();
    let input = |name: &str| tensors.iter().find(|tensor| tensor.name == name);
    let Some(ids) = input("input_ids") else {
        return Vec::new();
    };
    let count = ids.shape.first().copied().unwrap_or(0).max(0) as usize;
    let call = Arc::new(Call {
        request: Mutex::new(None),
        pending: Mutex::new(count),
    });
    let value = |name: &str, row: usize| {
        let values = input(name).map(Tensor::integers).unwrap_or_default();
        values.get(row).copied().unwrap_or(0).max(0) as usize
    };
    let of_row = |tensor: &Tensor, row: usize| {
        let values = tensor.integers();
        let width = values.len() / count;
        values[row * width..(row + 1) * width].to_vec()
    };
    let proposes = input("min_length").is_some() || input("min_tokens").is_some();
    let is_streamed = input("streaming").is_some();
    let returns_log_probs = input("return_log_probs").is_some();
    let rows = (0..count).map(|row| {
        let mut whole = of_row(ids, row);
        whole.truncate(value("input_lengths", row));
        let known = whole.len();
        let drafts = input("draft_input_ids").map(|tensor| of_row(tensor, row));
        let new = value("request_output_len", row);
        let steps = drafts.as_ref().map_or(new, |_| 1).max(1) as u32;
        let log_probs = match proposes {
            true => language.propose(&mut whole, new),
            false => {
                language.answer(&mut whole, drafts.as_deref(), new);
                vec![0.0; whole.len() - known]
            }
        };
        let mut prefix: Vec<i32> = whole.into_iter().map(|token| token as i32).collect();
        let new = prefix.split_off(known);
        Row {
            call: Arc::clone(&call),
            index: row as i32,
            new,
            log_probs: returns_log_probs.then_some(log_probs),
            prefix: (!is_streamed).then_some(prefix),
            steps,
        }
    });
    let rows = rows.collect();
    *lock(&call.request) = Some(request);
    rows
}
