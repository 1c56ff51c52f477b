//! The events that a sequence processes, and the effects that its owner carries out.

use super::chunk::{Chunk, Source};
use super::part::Part;
use crate::engine::{Call, EngineResult};
use crate::error::Error;

/// What has happened to a sequence.
#[derive(Debug)]
pub enum Event {
    /// It may make its first call.
    Started,
    /// The call that it waits for has this result, after this time.
    Completed { result: EngineResult, seconds: f64 },
    /// A pipelined draft call has its result.
    PipelinedCompleted {
        number: u64,
        result: EngineResult,
        seconds: f64,
    },
    /// The streamed call of this number has decoded more tokens, has ended, or has failed.
    Streamed {
        number: u64,
        result: EngineResult,
        is_final: bool,
    },
    /// Time has passed: the sequence checks its timeout.
    Tick,
}

/// What the owner of a sequence does after an event. It cancels the stream first, and does the rest
/// in this order.
#[derive(Debug, Default)]
pub struct Effects {
    /// Make this call, and report its result as [`Event::Completed`], or its results as
    /// [`Event::Streamed`] if it is a streamed one.
    pub call: Option<Call>,
    /// Cancel the streamed call in flight before another call is made.
    pub cancels_stream: bool,
    /// Make this draft call beside `call`. If too many such calls are in flight, report
    /// [`Sequence::reject_pipelined`] instead.
    ///
    /// [`Sequence::reject_pipelined`]: super::Sequence::reject_pipelined
    pub pipelined: Option<PipelinedCall>,
    /// Add these numbers to the metrics.
    pub counts: Option<Counts>,
    /// The draft failed with this message, and the sequence continues without the draft model.
    pub draft_error: Option<String>,
    /// The adaptive policy settled on this draft length.
    pub draft_length: Option<usize>,
    /// Send these parts to the client.
    pub parts: Vec<Part>,
    /// End the sequence. No further effect follows.
    pub end: Option<End>,
}

/// A draft call for the next proposal, made at the same time as a verification.
#[derive(Debug)]
pub struct PipelinedCall {
    /// Its number within the sequence.
    pub number: u64,
    pub call: Call,
}

/// What a call adds to the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Draft tokens that the target verified.
    pub drafted: usize,
    /// Draft tokens that it accepted.
    pub accepted: usize,
    pub rounds: usize,
    /// Rounds whose proposal came from a pipelined draft call.
    pub pipelined_rounds: usize,
    /// The draft tokens came from a lookup, not from the draft model.
    pub lookup: bool,
    /// The draft tokens came from the memory, not from the text itself.
    pub memory: bool,
    /// Tokens of the answer.
    pub generated: usize,
}

impl Counts {
    pub(super) fn of(chunk: &Chunk) -> Self {
        // In a target-only run, these are counts of an engine that does its own drafting. It
        // returns them only if the request asks for them, so the metrics omit them.
        let own = chunk.rounds > 0;
        Self {
            drafted: if own { chunk.drafted } else { 0 },
            accepted: if own { chunk.accepted } else { 0 },
            rounds: chunk.rounds,
            pipelined_rounds: usize::from(chunk.source == Source::PipelinedModel),
            lookup: matches!(chunk.source, Source::Lookup { .. }),
            memory: matches!(chunk.source, Source::Lookup { memory: true, .. }),
            generated: chunk.tokens.len(),
        }
    }
}

/// How a sequence ends.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Completed,
    Cancelled,
    Failed(Error),
}
