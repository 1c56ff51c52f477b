//! Runs one sequence with simulated engines, whose results may arrive in any order.

use std::collections::VecDeque;
use std::sync::Arc;

use triton_specdec::draft_length::{FixedLength, LengthPolicy};
use triton_specdec::lookup::Lookup;
use triton_specdec::lookup::memory::Memory;
use triton_specdec::request::task::Task;
use triton_specdec::sequence::part::Part;
use triton_specdec::sequence::{Counts, End, Event, Resources, Sequence};
use triton_specdec::tokenizer::Tokenizer;

use super::Letters;
use super::engine::Engine;
use super::numbers::Numbers;
use super::owner::Owner;

/// When the result of a pipelined draft call arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipelined {
    /// Drafting is not pipelined.
    Off,
    /// Before that of the verification.
    Early,
    /// When no other call is in flight.
    Late,
    /// At a random time with this seed. Until then, further pipelined calls are rejected.
    Anytime(u32),
    /// Every pipelined call is rejected.
    Rejected,
    /// Before that of the verification. Every second pipelined call is rejected.
    EverySecond,
    /// Never, because the draft died.
    Never,
}

/// One sequence to be run.
pub struct Run {
    pub target: Engine,
    pub draft: Option<Engine>,
    pub pipelined: Pipelined,
    pub tokenizer: Arc<dyn Tokenizer>,
    /// None for the fixed draft length of the task.
    pub policy: Option<Box<dyn LengthPolicy>>,
    /// Least tokens of a match of lookups; None without them.
    pub min_match: Option<usize>,
    /// Lookups also search this memory, in this scope.
    pub memory: Option<(Arc<Memory>, String)>,
    /// The target can send each token as it decodes it.
    pub streams: bool,
    /// The client disconnects after this many calls of the target and tokens of streamed calls.
    pub disconnects_after: usize,
}

/// What a run has produced.
pub struct Outcome {
    pub parts: Vec<Part>,
    pub end: End,
    pub counts: Counts,
    /// The share of lookups in the counts.
    pub lookup: Counts,
    /// Draft tokens from the memory that the target accepted.
    pub remembered: usize,
    /// Why the sequence continued without the draft.
    pub draft_errors: Vec<String>,
    pub target: Engine,
    /// Without calls where there is no draft.
    pub draft: Engine,
}

impl Run {
    /// A run with engines of these seeds. The target accepts every token of a draft with its seed.
    pub fn new(target: u64, draft: impl Into<Option<u64>>) -> Self {
        Self {
            target: Engine::target(target),
            draft: draft.into().map(Engine::draft),
            pipelined: Pipelined::Off,
            tokenizer: Arc::new(Letters),
            policy: None,
            min_match: None,
            memory: None,
            streams: true,
            disconnects_after: usize::MAX,
        }
    }

    /// Run the sequence to its end. Results that arrive after it must have no effect.
    pub fn finish(self, task: Task) -> Outcome {
        let fixed = Box::new(FixedLength(task.draft_tokens));
        let lookup = self.min_match.map(Lookup::new);
        let lookup = lookup.map(|lookup| match self.memory {
            Some((memory, scope)) => lookup.remembering(memory, scope),
            None => lookup,
        });
        let resources = Resources {
            tokenizer: self.tokenizer,
            policy: self.policy.unwrap_or(fixed),
            has_draft: self.draft.is_some(),
            pipelined: self.pipelined != Pipelined::Off,
            streams: self.streams,
            lookup,
        };
        let mut owner = Owner {
            sequence: Sequence::new(Arc::new(task), resources),
            target: self.target,
            draft: self.draft.unwrap_or_else(|| Engine::draft(0)),
            pipelined: self.pipelined,
            numbers: Numbers::new(match self.pipelined {
                Pipelined::Anytime(seed) => seed,
                _ => 0,
            }),
            call: None,
            stream: None,
            cancelled: Vec::new(),
            pipelined_calls: VecDeque::new(),
            parts: Vec::new(),
            end: None,
            counts: Counts::default(),
            lookup: Counts::default(),
            remembered: 0,
            draft_errors: Vec::new(),
            disconnects_after: self.disconnects_after,
            target_calls: 0,
        };
        owner.deliver(Event::Started);
        while owner.end.is_none() {
            owner.step();
        }
        owner.deliver_late_results();
        Outcome {
            parts: owner.parts,
            end: owner.end.unwrap(),
            counts: owner.counts,
            lookup: owner.lookup,
            remembered: owner.remembered,
            draft_errors: owner.draft_errors,
            target: owner.target,
            draft: owner.draft,
        }
    }
}

impl Outcome {
    /// The text of all parts of a completed sequence.
    pub fn text(&self) -> String {
        assert_eq!(self.end, End::Completed);
        self.parts.iter().map(|part| part.text.as_str()).collect()
    }
}
