//! The calls in which the target alone decodes: one for a whole answer, a few that each decode a
//! piece of it, or a streamed one.

use triton::Tensor;

use super::chunk::Chunk;
use super::tokens::{TARGET, Tokens, token_outputs};
use crate::engine::{Call, Role, find, new_tokens, token_log_probs};
use crate::error::Error;

/// Most tokens of a target-only call, if the client gets the answer in parts and the call is not
/// streamed.
const MOST_STREAM_TOKENS: usize = 8;
/// Tokens of the first call of an answer, and most tokens of a call, in a target-only run that a
/// lookup may cut short. A call that arrives while the engine computes for others waits for the
/// next step. Text without repetitions is therefore decoded in few calls.
const FIRST_PIECE_TOKENS: usize = 8;
const MOST_PIECE_TOKENS: usize = 64;

impl Tokens {
    /// Decode target-only runs in several calls, so that lookups can cut them short.
    pub fn decode_in_pieces(&mut self) {
        self.in_pieces = true;
        if !self.task.stream {
            self.piece_tokens = FIRST_PIECE_TOKENS;
        }
    }

    /// How many tokens the next call of a target-only run requests. The run still has to decode
    /// `left` tokens.
    ///
    /// An answer that the client gets in parts takes several calls, which request 1, 2, 4 and then
    /// `MOST_STREAM_TOKENS` tokens. The first token therefore arrives early, and later calls cost
    /// less time per token. A run that a lookup may cut short takes several calls as well, up to
    /// `MOST_PIECE_TOKENS` each. Any other run takes one call. An answer in parts also takes one
    /// call if one of its inputs requires that ([`Task::needs_one_call`]) and no lookup may cut the
    /// run short.
    pub fn target_only_length(&mut self, left: usize) -> usize {
        let (growth, most) = match (self.task.stream, self.in_pieces) {
            (true, true) => (2, MOST_STREAM_TOKENS),
            (true, false) if !self.task.needs_one_call() => (2, MOST_STREAM_TOKENS),
            (false, true) => (3, MOST_PIECE_TOKENS),
            _ => return left,
        };
        let length = self.piece_tokens.min(left);
        self.piece_tokens = (growth * self.piece_tokens).min(most);
        length
    }

    /// Begin the next target-only run with a short piece: after a round that accepted tokens, the
    /// text often matches again soon.
    pub fn shorten_pieces(&mut self) {
        if self.in_pieces {
            self.piece_tokens = 1;
        }
    }

    /// The call in which the target alone decodes `length` tokens.
    pub fn target_only_call(&self, length: usize) -> Call {
        let minimum = self.remaining_minimum().min(length);
        let mut inputs = self.task.inputs(&self.ids, length, minimum, false);
        let mut outputs = token_outputs();
        self.request_additional(&mut inputs, &mut outputs);
        self.request_log_probs(&mut inputs, &mut outputs);
        Call {
            role: Role::Target,
            inputs,
            outputs,
            batchable: false,
            draft_tokens: 0,
            may_shorten: false,
            stream: None,
        }
    }

    /// Append the tokens that a target-only call returned.
    ///
    /// # Errors
    /// The target returned no tokens that can be used.
    pub fn decoded(&mut self, length: usize, outputs: &[Tensor]) -> Result<Chunk, Error> {
        let new = new_tokens(outputs, self.ids.len(), TARGET)?;
        let (kept, ended) = self.append(new);
        Ok(Chunk {
            log_probs: token_log_probs(outputs, kept.len()),
            drafted: total(outputs, "total_draft_tokens"),
            accepted: total(outputs, "total_accepted_draft_tokens"),
            // The target returns fewer tokens than requested only at the end.
            finished: ended || kept.len() < length || self.remaining() == 0,
            outputs: self.additional(outputs),
            tokens: kept,
            ..Chunk::default()
        })
    }

    /// Whether a target-only run can be streamed. Releases of TensorRT-LLM may differ in the logits
    /// and log probabilities that the responses of a stream contain.
    pub fn can_be_streamed(&self) -> bool {
        !self.task.log_probs && self.task.target_only_outputs.is_empty()
    }

    /// The streamed call of this number, in which the target alone decodes `length` tokens.
    pub fn streamed_call(&self, length: usize, number: u64) -> Call {
        let mut call = self.target_only_call(length);
        call.inputs.push(Tensor::flag("streaming"));
        call.stream = Some(number);
        call
    }

    /// Append the tokens of one response of a streamed call, which still has to decode `left`
    /// tokens. Unlike the response of any other call, it does not repeat the prefix.
    ///
    /// # Errors
    /// The target returned no tokens that can be used, or more than the call requested.
    pub fn streamed(
        &mut self,
        left: usize,
        outputs: &[Tensor],
        is_final: bool,
    ) -> Result<Chunk, Error> {
        let new = new_tokens(outputs, 0, TARGET)?;
        if new.len() > left {
            return Err(Error::EngineRefused(format!(
                "{TARGET} answered {} tokens to a streamed call for {left}: use a backend that \
                 sends only new tokens in a stream, or set serving.streaming to false",
                new.len()
            )));
        }
        let (kept, ended) = self.append(new);
        Ok(Chunk {
            finished: ended || (is_final && kept.len() < left) || self.remaining() == 0,
            tokens: kept,
            ..Chunk::default()
        })
    }
}

/// A count that an engine returns if it does its own drafting; 0 if it returned none.
fn total(outputs: &[Tensor], name: &str) -> usize {
    let value = find(outputs, name).and_then(|output| output.integers().first().copied());
    usize::try_from(value.unwrap_or(0)).unwrap_or(0)
}
