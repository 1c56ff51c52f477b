//! One task from its first call to its last token, and what a client gets of it.
//!
//! An answer never waits: it says which calls it wants, is told what they gave, and goes on from
//! there on whatever thread brought the news.

mod state;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use world::{End, Io, Means, Meter};

use state::{Coming, State, Stretch};

use crate::chunk::{Chunk, Proposal};
use crate::engine::Answered;
use crate::error::Error;
use crate::generation::Generation;
use crate::policy::FixedLength;
use crate::rendering::Rendering;
use crate::task::Task;

/// Longer than any proposal takes.
const PATIENCE: Duration = Duration::from_secs(1);

/// One task being answered.
pub struct Answer {
    generation: Generation,
    means: Means,
    state: State,
    stretch: Stretch,
    coming: Option<Coming>,
    number: u64,
    /// Draft tokens of the round under way, if the answer had room for them.
    wanted: usize,
    rendering: Rendering,
}

impl Answer {
    pub fn new(task: Arc<Task>, means: Means) -> Self {
        // A sampled answer shall follow from its seed alone, not from what was ready in time.
        let ahead = means.ahead && !task.drawn();
        Self {
            rendering: Rendering::new(Arc::clone(&task)),
            generation: Generation::new(task),
            means: Means { ahead, ..means },
            state: State::Resting,
            stretch: Stretch::default(),
            coming: None,
            number: 0,
            wanted: 0,
        }
    }

    pub fn task(&self) -> &Task {
        &self.generation.task
    }

    /// Make the first call.
    pub fn begin(&mut self, io: &mut dyn Io) {
        self.go_on_unless_cancelled(io);
    }

    /// The call that was wished for has its answer, after so many seconds.
    pub fn answered(&mut self, result: Answered, seconds: f64, io: &mut dyn Io) {
        match std::mem::replace(&mut self.state, State::Resting) {
            State::Drafting { length } => self.proposed(result, length, seconds, io),
            State::Verifying {
                proposal,
                seconds: drafting,
                early,
            } => {
                let chunk = result.and_then(|answer| self.generation.verified(&proposal, &answer));
                match chunk {
                    Ok(chunk) => {
                        let chunk = Chunk { early, ..chunk };
                        self.round_is_over(chunk, drafting, seconds, io);
                    }
                    Err(error) => self.fail(error, io),
                }
            }
            State::Plain { length } => {
                match result.and_then(|answer| self.generation.answered(length, &answer)) {
                    Ok(chunk) => self.part_is_over(chunk, io),
                    Err(error) => self.fail(error, io),
                }
            }
            // An answer that ended meanwhile, or was never asked for one.
            other => self.state = other,
        }
    }

    /// The call beside the target's has its answer.
    pub fn ahead_answered(&mut self, number: u64, result: Answered, seconds: f64, io: &mut dyn Io) {
        let Some(mut coming) = self.coming.take_if(|one| one.number == number) else {
            return;
        };
        let found = result.and_then(|answer| {
            self.generation
                .read_behind(&answer, coming.prefix, coming.length)
        });
        coming.found = Some(found.unwrap_or_default());
        coming.seconds = seconds;
        self.coming = Some(coming);
        if let State::Awaiting { length, .. } = self.state {
            self.begin_round(length, io);
        }
    }

    /// Some time has passed: give up what never comes.
    pub fn tick(&mut self, io: &mut dyn Io) {
        if let State::Awaiting { length, since } = self.state
            && since.elapsed() > PATIENCE
        {
            // The round's own call finds out whether the draft still answers.
            self.coming = None;
            self.begin_round(length, io);
        }
    }

    fn go_on_unless_cancelled(&mut self, io: &mut dyn Io) {
        if io.cancelled() {
            self.close(End::Cancelled, io);
        } else {
            self.go_on(io);
        }
    }

    fn go_on(&mut self, io: &mut dyn Io) {
        if self.stretch.left > 0 {
            return self.plain(io);
        }
        match self.means.lengths.length() {
            0 => {
                let tokens = self.means.lengths.plain_tokens();
                self.stretch = Stretch::of(tokens, self.generation.remaining());
                self.plain(io);
            }
            wanted => {
                self.wanted = wanted;
                let length = self.generation.round_length(wanted);
                self.begin_round(length, io);
            }
        }
    }

    fn begin_round(&mut self, length: usize, io: &mut dyn Io) {
        if length == 0 {
            return self.verify(Proposal::default(), 0.0, false, io);
        }
        match self.coming.take() {
            Some(coming) if coming.found.is_none() => {
                // The draft is nearer to its end than a new call would be.
                self.coming = Some(coming);
                let since = Instant::now();
                self.state = State::Awaiting { length, since };
            }
            Some(coming) => match coming.behind(self.generation.tokens(), length) {
                Some(tokens) => {
                    let proposal = Proposal {
                        tokens,
                        logits: None,
                    };
                    self.verify(proposal, coming.seconds, true, io);
                }
                None => self.propose(length, io),
            },
            None => self.propose(length, io),
        }
    }

    fn propose(&mut self, length: usize, io: &mut dyn Io) {
        if self.means.has_draft {
            self.state = State::Drafting { length };
            io.call(self.generation.proposal(length));
        } else {
            self.without_draft("this server has no draft model", io);
        }
    }

    fn proposed(&mut self, result: Answered, length: usize, seconds: f64, io: &mut dyn Io) {
        match result.and_then(|answer| self.generation.read_proposal(answer, length)) {
            Ok(proposal) => self.verify(proposal, seconds, false, io),
            Err(error) => self.without_draft(error.message(), io),
        }
    }

    /// The target alone gives the same answer, only slower.
    fn without_draft(&mut self, words: &str, io: &mut dyn Io) {
        self.means.meter.draft_failed(words);
        self.means.lengths.close();
        self.means.lengths = Box::new(FixedLength(0));
        self.go_on_unless_cancelled(io);
    }

    fn verify(&mut self, proposal: Proposal, seconds: f64, early: bool, io: &mut dyn Io) {
        let tokens = proposal.tokens.clone();
        let call = self.generation.verification(proposal, self.wanted);
        self.state = State::Verifying {
            proposal: tokens.clone(),
            seconds,
            early,
        };
        io.call(call);
        if self.means.ahead
            && let Some((call, length)) = self.generation.proposal_behind(&tokens)
        {
            self.number += 1;
            self.coming = io.ahead(self.number, call).then(|| Coming {
                number: self.number,
                prefix: self.generation.length() + tokens.len(),
                length,
                found: None,
                seconds: 0.0,
            });
        }
    }

    fn round_is_over(&mut self, chunk: Chunk, drafting: f64, verifying: f64, io: &mut dyn Io) {
        // What was drafted ahead took for granted that the whole proposal would be accepted.
        if chunk.accepted < chunk.drafted || chunk.tokens.len() <= chunk.drafted {
            self.coming = None;
        }
        let lengths = &mut self.means.lengths;
        lengths.round(chunk.drafted, chunk.accepted, drafting, verifying);
        self.take(chunk, io);
    }

    fn plain(&mut self, io: &mut dyn Io) {
        self.coming = None;
        let length = self.generation.plain_length(self.stretch.left);
        self.state = State::Plain { length };
        io.call(self.generation.plain(length));
    }

    fn part_is_over(&mut self, chunk: Chunk, io: &mut dyn Io) {
        self.stretch.tokens += chunk.tokens.len();
        self.stretch.left = self.stretch.left.saturating_sub(chunk.tokens.len());
        if chunk.finished {
            self.stretch.left = 0;
        }
        if self.stretch.left == 0 && !io.cancelled() {
            let seconds = self
                .stretch
                .begun
                .map_or(0.0, |at| at.elapsed().as_secs_f64());
            self.means.lengths.plain(self.stretch.tokens, seconds);
        }
        self.take(chunk, io);
    }

    /// Hand out a chunk and go on behind it.
    fn take(&mut self, chunk: Chunk, io: &mut dyn Io) {
        self.means.meter.chunk(&chunk);
        let going = !chunk.finished && !io.cancelled();
        if going && !self.rendering.decides_the_end() {
            // The engines need not wait for the text.
            self.go_on(io);
            return self.render(&chunk, io);
        }
        self.render(&chunk, io);
        if chunk.finished || self.rendering.stopped() {
            self.finish(io);
        } else if going {
            self.go_on(io);
        } else {
            self.close(End::Cancelled, io);
        }
    }

    fn render(&mut self, chunk: &Chunk, io: &mut dyn Io) {
        let tokenizer = self.means.tokenizer.as_ref();
        if let Some(part) = self.rendering.take(chunk, tokenizer) {
            io.part(part);
        }
    }

    fn finish(&mut self, io: &mut dyn Io) {
        if let Some(part) = self.rendering.rest(self.means.tokenizer.as_ref()) {
            io.part(part);
        }
        self.close(End::Done, io);
    }

    fn fail(&mut self, error: Error, io: &mut dyn Io) {
        let advice = match error {
            Error::EngineDied(_) => ": ask again when the server has started again",
            Error::EngineBusy(_) => ": send the request again later",
            _ => "",
        };
        let died = matches!(error, Error::EngineDied(_));
        let end = if !died && io.cancelled() {
            End::Cancelled
        } else {
            End::Failed(error.map_message(|message| format!("{message}{advice}")))
        };
        self.close(end, io);
    }

    fn close(&mut self, end: End, io: &mut dyn Io) {
        self.state = State::Resting;
        self.coming = None;
        self.means.lengths.close();
        io.end(end);
    }
}
