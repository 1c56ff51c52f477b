//! The calls in which the draft model proposes tokens, and what they return.

use triton::Tensor;

use super::chunk::{Proposal, Source};
use super::tokens::{DRAFT, Tokens, add_log_probs, token_outputs};
use crate::engine::{Call, Role, new_tokens, token_log_probs};
use crate::error::Error;

impl Tokens {
    /// The draft call of a round, for `length` tokens after those that the draft has proposed.
    pub fn draft_call(&self, begun: &[i32], length: usize, log_probs: bool) -> Call {
        let mut outputs = token_outputs();
        let mut inputs = if self.task.use_draft_logits {
            outputs.push("generation_logits".into());
            self.inputs_for_logits(length)
        } else {
            self.draft_inputs(begun, length)
        };
        if log_probs {
            add_log_probs(&mut inputs, &mut outputs);
        }
        Call {
            role: Role::Draft,
            inputs,
            outputs,
            batchable: true,
            draft_tokens: length,
            may_shorten: !self.task.is_sampled(),
            stream: None,
        }
    }

    /// Inputs of a draft call for `length` tokens after those that the draft has proposed.
    fn draft_inputs(&self, begun: &[i32], length: usize) -> Vec<Tensor> {
        let ids = [self.ids.as_slice(), begun].concat();
        // A later verification may have the same prefix as a call that extends a proposal, and has
        // to draw other random numbers.
        let distinct = !begun.is_empty();
        // With a minimum of `length`, the draft never proposes the end: the target decides where
        // the answer ends.
        self.task.inputs(&ids, length, length, distinct)
    }

    /// The whole proposal: `begun`, and after it the tokens that a draft call returned.
    ///
    /// # Errors
    /// The draft returned no tokens or logits that can be used.
    pub fn proposal(
        &self,
        begun: Proposal,
        outputs: Vec<Tensor>,
        length: usize,
    ) -> Result<Proposal, Error> {
        let prefix = self.ids.len() + begun.tokens.len();
        let mut tokens = new_tokens(&outputs, prefix, DRAFT)?;
        tokens.truncate(length);
        let log_probs = token_log_probs(&outputs, tokens.len());
        let logits = self.draft_logits(outputs, tokens.len())?;
        Ok(Proposal {
            tokens: [begun.tokens, tokens].concat(),
            log_probs: [begun.log_probs, log_probs].concat(),
            logits,
            source: Source::Model,
        })
    }

    /// A draft call that continues `proposal` during its verification, and how many tokens it
    /// requests: a guess at the target's own token, then the next proposal.
    ///
    /// None if the answer has no room for the guess, one draft token and the target's own token.
    pub fn pipelined_draft_call(&self, proposal: &[i32], log_probs: bool) -> Option<(Call, usize)> {
        let room = self.remaining().checked_sub(proposal.len() + 2)?;
        if proposal.is_empty() || room < 1 {
            return None;
        }
        let length = proposal.len().min(room) + 1;
        let call = self.draft_call(proposal, length, log_probs);
        let call = Call {
            may_shorten: false,
            ..call
        };
        Some((call, length))
    }

    /// Tokens that a pipelined draft call returned for a prefix of `prefix` tokens.
    ///
    /// # Errors
    /// The draft returned none.
    pub fn pipelined_proposal(
        &self,
        outputs: &[Tensor],
        prefix: usize,
        length: usize,
    ) -> Result<Proposal, Error> {
        let mut tokens = new_tokens(outputs, prefix, DRAFT)?;
        tokens.truncate(length);
        if tokens.is_empty() {
            return Err(Error::EngineRefused(format!("{DRAFT} proposed no token")));
        }
        Ok(Proposal {
            log_probs: token_log_probs(outputs, tokens.len()),
            tokens,
            ..Proposal::default()
        })
    }
}
