//! The tokens of one answer as they grow: inputs of the engines' calls, and what came back.
//!
//! The scheme is speculative decoding (Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023,
//! arXiv:2302.01318). Acceptance itself happens inside the target's engine, which answers with the
//! accepted draft tokens and one token of its own; this module sizes the rounds and ends the answer.

use std::borrow::Cow;
use std::sync::Arc;

use crate::chunk::{Chunk, Proposal};
use crate::engine::{Call, Role, new_tokens, token_log_probs};
use crate::error::Error;
use crate::matcher::StopTokens;
use crate::rows::DRAFT_IDS;
use crate::task::Task;
use triton::{DataType, Tensor};

/// Tokens of the longest part of a plain stream.
const LONGEST_PART: usize = 8;
const TARGET: &str = "tensorrt_llm";
const DRAFT: &str = "tensorrt_llm_draft";

/// The answer to one task as it grows.
pub struct Generation {
    pub task: Arc<Task>,
    /// The prompt and what was generated.
    ids: Vec<i32>,
    part: usize,
    stop: StopTokens,
}

impl Generation {
    pub fn new(task: Arc<Task>) -> Self {
        Self {
            ids: task.prompt.clone(),
            part: 1,
            stop: StopTokens::new(&task.stop_words, &task.prompt),
            task,
        }
    }

    /// Generated so far.
    pub fn tokens(&self) -> &[i32] {
        &self.ids[self.task.prompt.len()..]
    }

    /// Tokens that may still come.
    pub fn remaining(&self) -> usize {
        self.task.max_tokens.saturating_sub(self.tokens().len())
    }

    /// Draft tokens that are worth proposing of so many.
    pub fn round_length(&self, wanted: usize) -> usize {
        // The target always adds one token, so drafting the last one would be wasted.
        wanted.min(self.remaining().saturating_sub(1))
    }

    /// Let the draft propose so many tokens.
    pub fn proposal(&self, length: usize) -> Call {
        let mut outputs = steps();
        let inputs = if self.task.use_draft_logits {
            outputs.push("generation_logits".into());
            self.proposal_with_logits(length)
        } else {
            // A minimum of `length` keeps the draft from ending early: whether the answer ends is
            // the target's decision.
            self.task.inputs(&self.ids, length, length, false)
        };
        Call {
            role: Role::Draft,
            inputs,
            outputs,
            round: true,
            drafts: length,
            shortens: !self.task.drawn(),
        }
    }

    /// What the draft answered.
    pub fn read_proposal(&self, answer: Vec<Tensor>, length: usize) -> Result<Proposal, Error> {
        let mut tokens = new_tokens(&answer, self.ids.len(), DRAFT)?;
        tokens.truncate(length);
        let logits = self.draft_logits(answer, tokens.len())?;
        Ok(Proposal { tokens, logits })
    }

    /// Let the draft go on behind its proposal: a guess at the target's own token, then more.
    ///
    /// None where not even the guess, a draft token and the target's own would fit behind it. The
    /// number is how many tokens are asked for.
    pub fn proposal_behind(&self, proposal: &[i32]) -> Option<(Call, usize)> {
        let room = self.remaining().checked_sub(proposal.len() + 2)?;
        if proposal.is_empty() || room < 1 {
            return None;
        }
        let length = proposal.len().min(room) + 1;
        let ids = [self.ids.as_slice(), proposal].concat();
        let call = Call {
            role: Role::Draft,
            inputs: self.task.inputs(&ids, length, length, false),
            outputs: steps(),
            round: true,
            drafts: length,
            shortens: false,
        };
        Some((call, length))
    }

    /// Tokens that the draft proposed behind `assumed` tokens that were not there yet.
    pub fn read_behind(
        &self,
        answer: &[Tensor],
        prefix: usize,
        length: usize,
    ) -> Result<Vec<i32>, Error> {
        let mut tokens = new_tokens(answer, prefix, DRAFT)?;
        tokens.truncate(length);
        if tokens.is_empty() {
            return Err(Error::EngineRefused(format!("{DRAFT} proposed nothing")));
        }
        Ok(tokens)
    }

    /// Tokens of prompt and answer.
    pub fn length(&self) -> usize {
        self.ids.len()
    }

    /// Let the target verify a proposal, which may be empty, and add a token of its own.
    ///
    /// Rounds of `wanted` draft tokens go together, also where this one has fewer.
    pub fn verification(&self, proposal: Proposal, wanted: usize) -> Call {
        let count = proposal.tokens.len();
        let minimum = self.remaining_minimum();
        let mut inputs = self.task.inputs(&self.ids, count + 1, minimum, false);
        let drafts = self.filled(count, wanted);
        if drafts > 0 {
            let shape = [1, count as i64];
            inputs.push(Tensor::int32(DRAFT_IDS, &shape, &proposal.tokens));
        }
        inputs.extend(proposal.logits);
        let mut outputs = steps();
        if self.task.log_probs {
            inputs.push(Tensor::flag("return_log_probs"));
            outputs.extend(log_probs());
        }
        Call {
            role: Role::Target,
            inputs,
            outputs,
            round: true,
            drafts,
            shortens: false,
        }
    }

    /// Take in what the target made of a proposal.
    pub fn verified(&mut self, proposal: &[i32], answer: &[Tensor]) -> Result<Chunk, Error> {
        let mut new = new_tokens(answer, self.ids.len(), TARGET)?;
        new.truncate(proposal.len() + 1);
        let agreed = common_prefix(proposal, &new);
        let (kept, ended) = self.keep(&new);
        Ok(Chunk {
            log_probs: token_log_probs(answer, kept.len()),
            drafted: proposal.len(),
            accepted: agreed.min(kept.len()),
            rounds: 1,
            // Without a token of its own behind the agreed ones the target has met the end.
            finished: ended || new.len() <= agreed || self.remaining() == 0,
            tokens: kept,
            ..Chunk::default()
        })
    }

    /// Tokens of the next call without a draft, of so many in all; 0 for the rest.
    ///
    /// A stream comes in calls of their own, which double from one token to `LONGEST_PART`: the
    /// first one comes at once and a call's cost spreads over many tokens.
    pub fn plain_length(&mut self, left: usize) -> usize {
        if !self.task.stream || self.task.undivided() {
            return left;
        }
        let length = self.part.min(left);
        self.part = (2 * self.part).min(LONGEST_PART);
        length
    }

    /// Let the target alone answer so many tokens.
    pub fn plain(&self, length: usize) -> Call {
        let minimum = self.remaining_minimum().min(length);
        let mut inputs = self.task.inputs(&self.ids, length, minimum, false);
        inputs.extend(self.task.plain.iter().cloned());
        let mut outputs = steps();
        if self.task.log_probs {
            inputs.push(Tensor::flag("return_log_probs"));
            outputs.extend(log_probs());
        }
        outputs.extend(self.task.outputs.iter().map(|one| Cow::Owned(one.clone())));
        Call {
            role: Role::Target,
            inputs,
            outputs,
            round: false,
            drafts: 0,
            shortens: false,
        }
    }

    /// Take in what the target alone answered.
    pub fn answered(&mut self, length: usize, answer: &[Tensor]) -> Result<Chunk, Error> {
        let new = new_tokens(answer, self.ids.len(), TARGET)?;
        let (kept, ended) = self.keep(&new);
        let wanted = |one: &&Tensor| self.task.outputs.iter().any(|name| *name == one.name);
        Ok(Chunk {
            log_probs: token_log_probs(answer, kept.len()),
            // Fewer tokens than asked for: the target has met the end.
            finished: ended || kept.len() < length || self.remaining() == 0,
            extras: answer.iter().filter(wanted).cloned().collect(),
            tokens: kept,
            ..Chunk::default()
        })
    }

    /// Inputs of a draft call whose tokens are drawn from the very logits it returns.
    ///
    /// Rejection sampling compares with those, so nothing may bend what is drawn: the draft may
    /// propose the end like any other token, or while the user's minimum keeps the target from
    /// ending as well, no proposal goes beyond that.
    fn proposal_with_logits(&self, length: usize) -> Vec<Tensor> {
        let held = self.remaining_minimum();
        let most = if held > 0 { length.min(held) } else { length };
        let mut inputs = self.task.inputs(&self.ids, most, held.min(most), true);
        if held == 0 {
            inputs.retain(|one| one.name != "end_id");
            inputs.push(Tensor::scalar("end_id", -1));
        }
        inputs.push(Tensor::flag("return_generation_logits"));
        inputs
    }

    fn draft_logits(&self, answer: Vec<Tensor>, count: usize) -> Result<Option<Tensor>, Error> {
        if !self.task.use_draft_logits || count == 0 {
            return Ok(None);
        }
        let mut answer = answer.into_iter();
        let found = answer.find(|one| one.name == "generation_logits" && !one.data.is_empty());
        let Some(mut logits) = found else {
            return Err(Error::EngineRefused(format!(
                "{DRAFT} returned no generation logits: \
                 build the draft with them or leave use_draft_logits out"
            )));
        };
        // [1, beam, steps, vocabulary] -> [1, steps, vocabulary]. With fast logits one step holds
        // a handle in place of the values; it passes unchanged.
        let vocabulary = logits.shape.last().copied().unwrap_or(1).max(1);
        let width = match logits.kind {
            DataType::Fp16 | DataType::Bf16 => 2,
            _ => 4,
        } * vocabulary as usize;
        let steps = count.min(logits.data.len() / width);
        // Megabytes: they stay where they are.
        logits.data.truncate(steps * width);
        logits.shape = vec![1, steps as i64, vocabulary];
        logits.name = "draft_logits".into();
        Ok(Some(logits))
    }

    /// Draft tokens that a verification of `count` may be filled up to; more than fit into the
    /// engine's sequence would be refused.
    fn filled(&self, count: usize, wanted: usize) -> usize {
        let fits = self.ids.len() + wanted < self.task.max_seq_len;
        if fits && !self.task.drawn() {
            wanted.max(count)
        } else {
            count
        }
    }

    fn remaining_minimum(&self) -> usize {
        let missing = self.task.min_tokens.saturating_sub(self.tokens().len());
        missing.min(self.remaining())
    }

    /// Append tokens up to the end of the answer; the ones kept, and whether it ended.
    fn keep(&mut self, new: &[i32]) -> (Vec<i32>, bool) {
        let fitting = &new[..new.len().min(self.remaining())];
        for (index, token) in fitting.iter().enumerate() {
            self.ids.push(*token);
            if self.ends(*token) {
                return (fitting[..=index].to_vec(), true);
            }
        }
        (fitting.to_vec(), false)
    }

    /// Whether the token that was appended ends the answer.
    fn ends(&mut self, token: i32) -> bool {
        self.stop.end_with(token) || token == self.task.end_id
    }
}

fn steps() -> Vec<Cow<'static, str>> {
    vec!["output_ids".into(), "sequence_length".into()]
}

fn log_probs() -> [Cow<'static, str>; 2] {
    ["output_log_probs".into(), "cum_log_probs".into()]
}

fn common_prefix(first: &[i32], second: &[i32]) -> usize {
    first
        .iter()
        .zip(second)
        .take_while(|(left, right)| left == right)
        .count()
}
