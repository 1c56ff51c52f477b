//! One sequence: a prompt and the tokens generated for it, from the first call to the last token.
//!
//! A sequence is a state machine without threads or I/O. It takes only the short locks of the draft
//! length policy and of the memory, which it shares with other sequences. It processes an
//! [`Event`], such as the result of a call, and returns [`Effects`]: the calls to make, the parts
//! to send and the end. Its owner, `serving::in_flight`, carries them out.
//!
//! A round of speculative decoding is a draft call, which proposes tokens, and a verification step
//! of the target. With pipelined drafting, the draft extends the proposal while the target verifies
//! it. A lookup proposes tokens from the text itself. A target-only run decodes without a draft.

pub mod chunk;
pub mod detokenizer;
mod draft_calls;
mod effects;
mod logits;
mod lookups;
pub mod part;
mod phase;
pub mod rendering;
mod rounds;
pub mod statistics;
pub mod stop_words;
mod target_only;
mod target_only_calls;
pub mod tokens;
mod unused_candidate;

use std::sync::Arc;
use std::time::Duration;

pub use effects::{Counts, Effects, End, Event, PipelinedCall};

use phase::{Phase, PipelinedDraft, TargetOnlyRun};

use self::chunk::Chunk;
use self::part::Part;
use self::rendering::Rendering;
use self::tokens::Tokens;
use self::unused_candidate::UnusedCandidate;
use crate::draft_length::LengthPolicy;
use crate::engine::{Call, EngineResult};
use crate::error::Error;
use crate::lookup::Lookup;
use crate::request::task::Task;
use crate::tokenizer::Tokenizer;

/// How long a round waits for its pipelined proposal. No proposal of a live draft takes that long.
const PIPELINED_TIMEOUT: Duration = Duration::from_secs(1);

/// What a sequence works with besides its task.
pub struct Resources {
    pub tokenizer: Arc<dyn Tokenizer>,
    pub policy: Box<dyn LengthPolicy>,
    pub has_draft: bool,
    /// The draft may propose while the target verifies.
    pub pipelined: bool,
    /// The target can send each token as it decodes it.
    pub streams: bool,
    /// The search for earlier occurrences of the last tokens, whose continuations are drafts.
    pub lookup: Option<Lookup>,
}

/// One sequence.
pub struct Sequence {
    tokens: Tokens,
    resources: Resources,
    phase: Phase,
    target_only: TargetOnlyRun,
    pipelined: Option<PipelinedDraft>,
    /// Number of the last pipelined draft call.
    last_pipelined: u64,
    /// Number of the last streamed call.
    last_stream: u64,
    /// Draft tokens of this round's first call, or of its lookup. A cut of the proposal lowers this
    /// number. A verification may pad a shorter proposal to it.
    draft_length: usize,
    /// A candidate of a lookup that the policy did not use, until its comparison with the generated
    /// tokens has a result.
    unused: Option<UnusedCandidate>,
    /// Most draft tokens of this round, if further draft calls extend the proposal.
    most_draft_tokens: usize,
    rendering: Rendering,
    /// Tokens that [`Sequence::render`] has yet to turn into text.
    unrendered: Option<Chunk>,
}

impl Sequence {
    pub fn new(task: Arc<Task>, resources: Resources) -> Self {
        // A sampled answer must depend on its seed alone, and not on which call ended first.
        let pipelined = resources.pipelined && !task.is_sampled();
        // A request without drafts has none from lookups either. Lookups have no logits.
        let looks_up = task.draft_tokens > 0 && !task.use_draft_logits;
        let lookup = resources.lookup.filter(|_| looks_up);
        let mut tokens = Tokens::new(Arc::clone(&task));
        if lookup.is_some() && !resources.has_draft {
            tokens.decode_in_pieces();
        }
        Self {
            rendering: Rendering::new(task),
            tokens,
            resources: Resources {
                pipelined,
                lookup,
                ..resources
            },
            phase: Phase::Idle,
            target_only: TargetOnlyRun::default(),
            pipelined: None,
            last_pipelined: 0,
            last_stream: 0,
            draft_length: 0,
            most_draft_tokens: 0,
            unused: None,
            unrendered: None,
        }
    }

    /// Process an event. `cancelled` is true if the client has cancelled or disconnected.
    ///
    /// The owner makes the calls of the effects, and then calls [`Sequence::render`].
    pub fn handle(&mut self, event: Event, cancelled: bool) -> Effects {
        let mut step = Step {
            effects: Effects::default(),
            cancelled,
        };
        step.effects.parts.extend(self.render_tokens());
        match event {
            Event::Started => self.continue_unless_cancelled(&mut step),
            Event::Completed { result, seconds } => self.completed(result, seconds, &mut step),
            Event::PipelinedCompleted {
                number,
                result,
                seconds,
            } => self.pipelined_completed(number, result, seconds, &mut step),
            Event::Streamed {
                number,
                result,
                is_final,
            } => self.streamed(number, result, is_final, &mut step),
            Event::Tick => self.tick(&mut step),
        }
        step.effects
    }

    /// Report that a pipelined draft call was not made, because too many of them are in flight.
    pub fn reject_pipelined(&mut self, number: u64) {
        self.pipelined.take_if(|draft| draft.number == number);
    }

    /// Render the tokens of the last event, if they were not rendered yet. Rendering is a separate
    /// step, so that the next engine call is sent before it. For the same reason, lookups learn the
    /// prompt in this step.
    pub fn render(&mut self) -> Option<Part> {
        self.learn();
        self.render_tokens()
    }

    fn render_tokens(&mut self) -> Option<Part> {
        let chunk = self.unrendered.take()?;
        self.render_chunk(&chunk)
    }

    fn completed(&mut self, result: EngineResult, seconds: f64, step: &mut Step) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Drafting {
                begun,
                seconds: before,
                length,
            } => self.proposed(result, begun, length, (before, seconds), step),
            Phase::Verifying {
                proposal,
                source,
                draft_seconds,
            } => match result.and_then(|outputs| self.tokens.verified(&proposal, &outputs)) {
                Ok(chunk) => {
                    let chunk = Chunk { source, ..chunk };
                    self.round_completed(chunk, draft_seconds, seconds, step);
                }
                Err(error) => self.fail(error, step),
            },
            Phase::TargetOnly { length } => {
                match result.and_then(|outputs| self.tokens.decoded(length, &outputs)) {
                    Ok(chunk) => self.target_only_completed(chunk, step),
                    Err(error) => self.fail(error, step),
                }
            }
            // The sequence has ended, or did not make this call.
            other => self.phase = other,
        }
    }

    fn tick(&mut self, step: &mut Step) {
        if let Phase::AwaitingPipelined { length, since } = self.phase
            && since.elapsed() > PIPELINED_TIMEOUT
        {
            // Without its pipelined proposal, the round makes a draft call of its own. That call
            // fails if the draft is dead.
            self.pipelined = None;
            self.begin_round(length, step);
        }
    }

    fn continue_unless_cancelled(&mut self, step: &mut Step) {
        if step.cancelled {
            self.close(End::Cancelled, step);
        } else {
            self.next_call(step);
        }
    }

    fn next_call(&mut self, step: &mut Step) {
        if self.begin_lookup_round(step) || self.is_streaming() {
            return;
        }
        if self.target_only.left > 0 {
            return self.decode_target_only(step);
        }
        if self.drafts_only_by_lookup() {
            return self.decode_until_lookup(step);
        }
        let choice = self.resources.policy.choose();
        if choice.settled.is_some() {
            step.effects.draft_length = choice.settled;
        }
        if choice.length == 0 {
            let tokens = self.resources.policy.target_only_tokens();
            self.target_only = TargetOnlyRun::start(tokens, self.tokens.remaining());
            self.decode_target_only(step);
        } else {
            self.draft_length = choice.length;
            self.most_draft_tokens = choice.most;
            let length = self.tokens.proposal_length(choice.length);
            self.begin_round(length, step);
        }
    }

    /// Report the new tokens of a call, and make the next call or end.
    fn continue_after(&mut self, chunk: Chunk, step: &mut Step) {
        step.effects.counts = Some(Counts::of(&chunk));
        let continues = !chunk.finished && !step.cancelled;
        if continues && !self.rendering.may_end_sequence() {
            self.next_call(step);
            self.unrendered = Some(chunk);
            return;
        }
        step.effects.parts.extend(self.render_chunk(&chunk));
        if chunk.finished || self.rendering.stopped() {
            step.effects.parts.extend(self.render_last());
            self.close(End::Completed, step);
        } else if continues {
            self.next_call(step);
        } else {
            self.close(End::Cancelled, step);
        }
    }

    fn render_chunk(&mut self, chunk: &Chunk) -> Option<Part> {
        self.rendering.add(chunk, self.resources.tokenizer.as_ref())
    }

    fn render_last(&mut self) -> Option<Part> {
        self.rendering.last(self.resources.tokenizer.as_ref())
    }

    fn fail(&mut self, error: Error, step: &mut Step) {
        let advice = match error {
            Error::EngineDied(_) => ": ask again when the server has started again",
            Error::EngineBusy(_) => ": send the request again later",
            _ => "",
        };
        let died = matches!(error, Error::EngineDied(_));
        let end = if step.cancelled && !died {
            End::Cancelled
        } else {
            End::Failed(error.map_message(|message| format!("{message}{advice}")))
        };
        self.close(end, step);
    }

    fn close(&mut self, end: End, step: &mut Step) {
        self.cancel_stream(step);
        self.phase = Phase::Idle;
        self.pipelined = None;
        self.resources.policy.close();
        step.effects.end = Some(end);
    }
}

/// The processing of one event: the effects so far, and whether the client has cancelled.
struct Step {
    effects: Effects,
    cancelled: bool,
}

impl Step {
    fn call(&mut self, call: Call) {
        self.effects.call = Some(call);
    }
}
