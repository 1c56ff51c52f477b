//! Rounds of a sequence whose proposals come from a lookup: in its own text, or in the memory.

use super::chunk::{Proposal, Source};
use super::phase::TargetOnlyRun;
use super::unused_candidate::UnusedCandidate;
use super::{Sequence, Step};
use crate::draft_length::Alternative;

impl Sequence {
    /// Look up the tokens that followed an earlier occurrence of the last tokens. Verify them if
    /// they are worth a round. False if there is nothing to verify.
    pub(super) fn begin_lookup_round(&mut self, step: &mut Step) -> bool {
        let Some(proposal) = self.looked_up() else {
            return false;
        };
        if self.target_only.left > 0 {
            self.report_target_only();
            self.target_only.left = 0;
        }
        self.cancel_stream(step);
        self.pipelined = None;
        self.draft_length = proposal.tokens.len();
        self.verify(proposal, 0.0, step);
        true
    }

    /// Whether lookups are its only source of drafts.
    pub(super) fn drafts_only_by_lookup(&self) -> bool {
        self.resources.lookup.is_some() && !self.resources.has_draft
    }

    /// Decode with the target alone, in a stream or piece by piece, until a lookup finds something.
    pub(super) fn decode_until_lookup(&mut self, step: &mut Step) {
        self.target_only = TargetOnlyRun::start(0, self.tokens.remaining());
        self.decode_target_only(step);
    }

    /// Learn the prompt, and the tokens generated so far.
    pub(super) fn learn(&mut self) {
        if let Some(lookup) = &mut self.resources.lookup {
            lookup.extend(self.tokens.ids());
        }
    }

    /// Prompt and answer so far.
    pub fn ids(&self) -> &[i32] {
        self.tokens.ids()
    }

    /// The proposal of a lookup, if there is one and it is worth a round.
    fn looked_up(&mut self) -> Option<Proposal> {
        // The prompt is learned during the first call, which therefore is not delayed.
        if self.tokens.generated().is_empty() {
            return None;
        }
        self.learn();
        self.compare_unused_candidate();
        let alternative = match self.resources.has_draft {
            true => Alternative::DraftModel,
            false if self.is_streaming() => Alternative::Stream,
            false => Alternative::TargetOnly,
        };
        let lookup = self.resources.lookup.as_ref()?;
        let most = self
            .tokens
            .proposal_length(self.tokens.task.max_draft_tokens);
        let mut candidate = lookup.candidate(self.tokens.ids(), most)?;
        let policy = &mut self.resources.policy;
        let length = policy.choose_lookup(&candidate.classes, alternative);
        if length == 0 {
            let start = self.tokens.len();
            self.unused
                .get_or_insert_with(|| UnusedCandidate::new(candidate, start));
            return None;
        }
        candidate.tokens.truncate(length);
        candidate.classes.truncate(length);
        let memory = candidate.is_from_memory();
        Some(Proposal {
            tokens: candidate.tokens,
            source: Source::Lookup {
                memory,
                classes: candidate.classes,
            },
            ..Proposal::default()
        })
    }

    /// Report to the draft length policy whether a candidate that it did not use was right.
    fn compare_unused_candidate(&mut self) {
        let Some(unused) = self.unused.take() else {
            return;
        };
        match unused.outcome(self.tokens.ids()) {
            Some((classes, accepted)) => {
                let policy = &mut self.resources.policy;
                policy.lookup_compared(classes, accepted);
            }
            None => self.unused = Some(unused),
        }
    }
}
