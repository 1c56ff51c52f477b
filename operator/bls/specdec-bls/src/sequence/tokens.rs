//! The tokens of a sequence: the engine calls that continue them, and what the calls return.
//!
//! The scheme is speculative decoding (Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023,
//! arXiv:2302.01318). The target's engine itself accepts or rejects draft tokens: it returns the
//! accepted ones and one token of its own. This module decides how many tokens a call requests, and
//! where the answer ends.

use std::borrow::Cow;
use std::sync::Arc;

use triton::Tensor;

use super::chunk::{Chunk, Proposal};
use super::stop_words::StopTokens;
use crate::batching::merge::DRAFT_IDS;
use crate::engine::{Call, Role, find, new_tokens, token_log_probs};
use crate::error::Error;
use crate::request::task::Task;

pub(super) const TARGET: &str = "tensorrt_llm";
pub(super) const DRAFT: &str = "tensorrt_llm_draft";

/// The prompt and the generated tokens of one task.
pub struct Tokens {
    pub(super) task: Arc<Task>,
    /// Prompt and generated tokens.
    pub(super) ids: Vec<i32>,
    /// Tokens to request in the next call of a target-only run that is decoded in pieces.
    pub(super) piece_tokens: usize,
    /// Decode target-only runs in pieces, even if the answer is not streamed.
    pub(super) in_pieces: bool,
    stop_words: StopTokens,
}

impl Tokens {
    pub fn new(task: Arc<Task>) -> Self {
        Self {
            in_pieces: false,
            ids: task.prompt.clone(),
            piece_tokens: 1,
            stop_words: StopTokens::new(&task.stop_words, &task.prompt),
            task,
        }
    }

    /// Tokens generated so far.
    pub fn generated(&self) -> &[i32] {
        self.ids.get(self.task.prompt.len()..).unwrap_or_default()
    }

    /// Prompt and generated tokens.
    pub fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// Number of tokens of prompt and answer.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Tokens that may still be generated.
    pub fn remaining(&self) -> usize {
        self.task.max_tokens.saturating_sub(self.generated().len())
    }

    /// The part of a draft length that fits before the answer's last token.
    pub fn proposal_length(&self, draft_length: usize) -> usize {
        // The target always adds one token, so a draft token in the last place would be wasted.
        draft_length.min(self.remaining().saturating_sub(1))
    }

    /// The call in which the target verifies a proposal, which may be empty, and adds a token.
    ///
    /// Verifications with the same `draft_length` can become rows of one call, even if their
    /// proposals are shorter.
    pub fn verification_call(&self, proposal: Proposal, draft_length: usize) -> Call {
        let count = proposal.tokens.len();
        let minimum = self.remaining_minimum();
        let mut inputs = self.task.inputs(&self.ids, count + 1, minimum, false);
        let draft_tokens = self.padded_length(count, draft_length);
        if draft_tokens > 0 {
            let shape = [1, count as i64];
            inputs.push(Tensor::int32(DRAFT_IDS, &shape, &proposal.tokens));
        }
        inputs.extend(proposal.logits);
        let mut outputs = token_outputs();
        self.request_log_probs(&mut inputs, &mut outputs);
        if !self.task.target_only_outputs.is_empty() {
            // These are only statistics: a task that requests logits is target-only.
            self.request_additional(&mut inputs, &mut outputs);
        }
        Call {
            role: Role::Target,
            inputs,
            outputs,
            batchable: true,
            draft_tokens,
            may_shorten: false,
            stream: None,
        }
    }

    /// Append the tokens that a verification returned.
    ///
    /// # Errors
    /// The target returned no tokens that can be used.
    pub fn verified(&mut self, proposal: &[i32], outputs: &[Tensor]) -> Result<Chunk, Error> {
        let mut new = new_tokens(outputs, self.ids.len(), TARGET)?;
        new.truncate(proposal.len() + 1);
        let agreed = common_prefix(proposal, &new);
        let returned = new.len();
        let (kept, ended) = self.append(new);
        Ok(Chunk {
            log_probs: token_log_probs(outputs, kept.len()),
            drafted: proposal.len(),
            accepted: agreed.min(kept.len()),
            rounds: 1,
            // If the target adds no token to the accepted ones, the answer has ended. Within
            // `max_seq_len`, the target's engine shortens an output for no other reason.
            finished: ended || returned <= agreed || self.remaining() == 0,
            outputs: self.additional(outputs),
            tokens: kept,
            ..Chunk::default()
        })
    }

    pub(super) fn request_additional(
        &self,
        inputs: &mut Vec<Tensor>,
        outputs: &mut Vec<Cow<'static, str>>,
    ) {
        inputs.extend(self.task.target_only_inputs.iter().cloned());
        let names = self.task.target_only_outputs.iter().cloned();
        outputs.extend(names.map(Cow::Owned));
    }

    pub(super) fn additional(&self, outputs: &[Tensor]) -> Vec<Tensor> {
        let names = self.task.target_only_outputs.iter();
        let tensors = names.filter_map(|name| find(outputs, name));
        tensors.cloned().collect()
    }

    pub(super) fn request_log_probs(
        &self,
        inputs: &mut Vec<Tensor>,
        outputs: &mut Vec<Cow<'static, str>>,
    ) {
        if self.task.log_probs {
            add_log_probs(inputs, outputs);
            outputs.push("cum_log_probs".into());
        }
    }

    /// The number of draft tokens to which a batch may pad a proposal of `count` tokens.
    ///
    /// This is `count`, so no padding, for a sampled answer and near the end of the sequence. If
    /// the padding did not fit into the sequence, the engine would shorten the output.
    fn padded_length(&self, count: usize, draft_length: usize) -> usize {
        let fits = self.ids.len() + draft_length < self.task.max_seq_len;
        if fits && !self.task.is_sampled() {
            draft_length.max(count)
        } else {
            count
        }
    }

    /// New tokens that the client's minimum still requires before the answer may end.
    pub(super) fn remaining_minimum(&self) -> usize {
        let generated = self.generated().len();
        let missing = self.task.min_tokens.saturating_sub(generated);
        missing.min(self.remaining())
    }

    /// Append tokens up to the end of the answer. Returns the appended tokens, and whether the
    /// answer has ended.
    pub(super) fn append(&mut self, mut new: Vec<i32>) -> (Vec<i32>, bool) {
        new.truncate(self.remaining());
        for (index, token) in new.iter().enumerate() {
            self.ids.push(*token);
            if self.stop_words.push(*token) || *token == self.task.end_id {
                new.truncate(index + 1);
                return (new, true);
            }
        }
        (new, false)
    }
}

/// Request a log probability for each token.
pub(super) fn add_log_probs(inputs: &mut Vec<Tensor>, outputs: &mut Vec<Cow<'static, str>>) {
    inputs.push(Tensor::flag("return_log_probs"));
    outputs.push("output_log_probs".into());
}

pub(super) fn token_outputs() -> Vec<Cow<'static, str>> {
    vec!["output_ids".into(), "sequence_length".into()]
}

/// How many tokens both lists begin with.
pub(super) fn common_prefix(first: &[i32], second: &[i32]) -> usize {
    first
        .iter()
        .zip(second)
        .take_while(|(left, right)| left == right)
        .count()
}
