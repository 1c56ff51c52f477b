//! Rounds of a sequence: the draft's proposal, pipelined or not, and its verification.

use std::time::Instant;

use super::chunk::{Chunk, Proposal, Source};
use super::phase::{Phase, PipelinedDraft};
use super::{PipelinedCall, Sequence, Step};
use crate::draft_length::{FixedLength, Next};
use crate::engine::EngineResult;

impl Sequence {
    /// Keep the result of a pipelined draft call, and start the round that waits for it, if any.
    pub(super) fn pipelined_completed(
        &mut self,
        number: u64,
        result: EngineResult,
        seconds: f64,
        step: &mut Step,
    ) {
        let Some(draft) = self
            .pipelined
            .as_mut()
            .filter(|draft| draft.number == number)
        else {
            return;
        };
        let proposed = result.and_then(|outputs| {
            self.tokens
                .pipelined_proposal(&outputs, draft.prefix, draft.length)
        });
        draft.proposed = Some(proposed.unwrap_or_default());
        draft.seconds = seconds;
        if let Phase::AwaitingPipelined { length, .. } = self.phase {
            self.begin_round(length, step);
        }
    }

    /// Start a round of `length` draft tokens with the pipelined proposal, or with a draft call.
    pub(super) fn begin_round(&mut self, length: usize, step: &mut Step) {
        if length == 0 {
            return self.verify(Proposal::default(), 0.0, step);
        }
        match self.pipelined.take() {
            Some(draft) if draft.proposed.is_none() => {
                // The call in flight ends earlier than a new one would.
                self.pipelined = Some(draft);
                let since = Instant::now();
                self.phase = Phase::AwaitingPipelined { length, since };
            }
            Some(draft) => match draft.after(self.tokens.generated(), length) {
                Some(proposal) => {
                    let count = proposal.tokens.len();
                    self.extend_or_verify(proposal, count, (0.0, draft.seconds), step);
                }
                None => self.draft(Proposal::default(), 0.0, length, step),
            },
            None => self.draft(Proposal::default(), 0.0, length, step),
        }
    }

    /// Let the draft propose `length` tokens after those of `begun`, which took it `seconds`.
    fn draft(&mut self, begun: Proposal, seconds: f64, length: usize, step: &mut Step) {
        if !self.resources.has_draft {
            return self.continue_without_draft("this server has no draft model".to_owned(), step);
        }
        let log_probs = self.resources.policy.needs_log_probs();
        step.call(self.tokens.draft_call(&begun.tokens, length, log_probs));
        self.phase = Phase::Drafting {
            begun,
            seconds,
            length,
        };
    }

    /// Process the result of a draft call for `length` tokens that follow `begun`. `seconds` are
    /// those of the round's earlier draft calls, and of this one.
    pub(super) fn proposed(
        &mut self,
        result: EngineResult,
        begun: Proposal,
        length: usize,
        seconds: (f64, f64),
        step: &mut Step,
    ) {
        let before = begun.tokens.len();
        match result.and_then(|outputs| self.tokens.proposal(begun, outputs, length)) {
            Ok(proposal) => {
                let count = proposal.tokens.len() - before;
                self.extend_or_verify(proposal, count, seconds, step);
            }
            Err(error) => self.continue_without_draft(error.to_string(), step),
        }
    }

    /// Let the draft extend the proposal if the policy chooses so. Otherwise verify the proposal.
    /// The last `count` tokens of the proposal come from the last draft call.
    fn extend_or_verify(
        &mut self,
        mut proposal: Proposal,
        count: usize,
        (before, seconds): (f64, f64),
        step: &mut Step,
    ) {
        let policy = &mut self.resources.policy;
        let next = policy.proposed(count, seconds, &proposal.log_probs);
        let most = self.tokens.proposal_length(self.most_draft_tokens);
        let room = most.saturating_sub(proposal.tokens.len());
        match next {
            Next::Draft(more) if room > 0 && count > 0 => {
                self.draft(proposal, before + seconds, more.min(room), step);
            }
            Next::Draft(_) => self.verify(proposal, before + seconds, step),
            Next::Verify(most) => {
                if most < proposal.tokens.len() {
                    proposal.tokens.truncate(most);
                    // The draft length is cut as well. If it were not, a call with longer proposals
                    // would pad this one to their length, and the cut would save nothing.
                    self.draft_length = most.max(1);
                }
                self.verify(proposal, before + seconds, step);
            }
        }
    }

    /// Decode the rest of the answer without the draft model: with lookups if there are any, or
    /// with the target alone. A greedy answer stays the same and takes longer. A sampled answer may
    /// change, because its calls draw other random numbers.
    fn continue_without_draft(&mut self, reason: String, step: &mut Step) {
        step.effects.draft_error = Some(reason);
        self.resources.has_draft = false;
        if self.resources.lookup.is_none() {
            self.resources.policy.close();
            self.resources.policy = Box::new(FixedLength(0));
        } else {
            self.tokens.decode_in_pieces();
        }
        self.continue_unless_cancelled(step);
    }

    /// Verify a proposal, and draft its continuation at the same time if that is pipelined.
    pub(super) fn verify(&mut self, proposal: Proposal, draft_seconds: f64, step: &mut Step) {
        let (tokens, source) = (proposal.tokens.clone(), proposal.source.clone());
        step.call(self.tokens.verification_call(proposal, self.draft_length));
        if self.resources.pipelined
            && !matches!(source, Source::Lookup { .. })
            && let log_probs = self.resources.policy.needs_log_probs()
            && let Some((call, length)) = self.tokens.pipelined_draft_call(&tokens, log_probs)
        {
            self.last_pipelined += 1;
            self.pipelined = Some(PipelinedDraft {
                number: self.last_pipelined,
                prefix: self.tokens.len() + tokens.len(),
                length,
                proposed: None,
                seconds: 0.0,
            });
            step.effects.pipelined = Some(PipelinedCall {
                number: self.last_pipelined,
                call,
            });
        }
        self.phase = Phase::Verifying {
            proposal: tokens,
            source,
            draft_seconds,
        };
    }

    /// Report a round to the draft length policy, and continue after its tokens.
    pub(super) fn round_completed(
        &mut self,
        chunk: Chunk,
        draft_seconds: f64,
        verify_seconds: f64,
        step: &mut Step,
    ) {
        // The pipelined draft continued the whole proposal, so it is of use only if the target
        // accepted all of it and added a token.
        if chunk.accepted < chunk.drafted || chunk.tokens.len() <= chunk.drafted {
            self.pipelined = None;
        }
        if chunk.accepted > 0 {
            self.tokens.shorten_pieces();
        }
        let policy = &mut self.resources.policy;
        match &chunk.source {
            Source::Lookup { classes, .. } => {
                policy.lookup_completed(classes, chunk.accepted, verify_seconds);
            }
            Source::Model | Source::PipelinedModel => {
                policy.round_completed(chunk.drafted, chunk.accepted, draft_seconds, verify_seconds)
            }
        }
        self.continue_after(chunk, step);
    }
}
