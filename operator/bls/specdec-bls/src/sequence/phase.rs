//! The state of a sequence between two events.

use std::time::Instant;

use super::chunk::{Chunk, Proposal, Source};

/// The result that a sequence waits for.
pub enum Phase {
    /// Nothing: it has not started, or has ended.
    Idle,
    /// `length` more tokens of a proposal. The draft has proposed `begun` so far, in `seconds`.
    Drafting {
        begun: Proposal,
        seconds: f64,
        length: usize,
    },
    /// The proposal of a pipelined draft call that is still in flight.
    AwaitingPipelined { length: usize, since: Instant },
    /// The verification of a proposal.
    Verifying {
        proposal: Vec<i32>,
        source: Source,
        draft_seconds: f64,
    },
    /// Tokens of the target without a draft.
    TargetOnly { length: usize },
    /// The next token of the last streamed call.
    Streaming,
}

/// A run of tokens without a draft, which may take several calls or be streamed.
#[derive(Default)]
pub struct TargetOnlyRun {
    /// Tokens still to be decoded.
    pub left: usize,
    /// Tokens decoded.
    pub tokens: usize,
    /// It is one streamed call.
    pub streamed: bool,
    started: Option<Instant>,
    /// When the first tokens arrived, and how many they were.
    first: Option<(Instant, usize)>,
}

impl TargetOnlyRun {
    /// A run of this many tokens, at most `remaining`; 0 for all that remain.
    pub fn start(tokens: usize, remaining: usize) -> Self {
        let left = if tokens == 0 {
            remaining
        } else {
            tokens.min(remaining)
        };
        Self {
            left,
            started: Some(Instant::now()),
            ..Self::default()
        }
    }

    /// Count the tokens of a call.
    pub fn add(&mut self, chunk: &Chunk) {
        self.tokens += chunk.tokens.len();
        self.first.get_or_insert((Instant::now(), self.tokens));
        self.left = match chunk.finished {
            true => 0,
            false => self.left.saturating_sub(chunk.tokens.len()),
        };
    }

    /// Seconds since the run started.
    pub fn seconds(&self) -> f64 {
        self.started
            .map_or(0.0, |started| started.elapsed().as_secs_f64())
    }

    /// Seconds until the first tokens arrived, if no others have arrived since.
    pub fn seconds_to_first(&self) -> Option<f64> {
        let (at, _) = self.first.filter(|(_, count)| *count == self.tokens)?;
        Some((at - self.started?).as_secs_f64())
    }

    /// The tokens after the first ones, and their seconds; None if there are none yet.
    pub fn after_first(&self) -> Option<(usize, f64)> {
        let (at, count) = self.first.filter(|(_, count)| *count < self.tokens)?;
        Some((self.tokens - count, at.elapsed().as_secs_f64()))
    }
}

/// A pipelined draft call, in flight or with its result.
pub struct PipelinedDraft {
    pub number: u64,
    /// Number of tokens of the call's prefix. The prefix ends with the proposal under verification.
    pub prefix: usize,
    /// Tokens that the call requests.
    pub length: usize,
    /// A guess at the target's own next token and a proposal after it; None while in flight.
    pub proposed: Option<Proposal>,
    /// How long the call took.
    pub seconds: f64,
}

impl PipelinedDraft {
    /// At most `length` proposed tokens. None if the guess differs from the last token of
    /// `generated`, or if nothing was proposed after the guess.
    pub fn after(&self, generated: &[i32], length: usize) -> Option<Proposal> {
        let proposed = self.proposed.as_ref()?;
        let (guess, tokens) = proposed.tokens.split_first()?;
        let fits = !tokens.is_empty() && generated.last() == Some(guess);
        let log_probs = proposed.log_probs.iter().skip(1);
        fits.then(|| Proposal {
            tokens: tokens.iter().copied().take(length).collect(),
            log_probs: log_probs.copied().take(length).collect(),
            logits: None,
            source: Source::PipelinedModel,
        })
    }
}
