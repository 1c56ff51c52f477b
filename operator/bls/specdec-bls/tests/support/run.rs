//! Runs one sequence with simulated engines, whose results may arrive in any order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use triton_specdec::draft_length::{FixedLength, LengthPolicy};
use triton_specdec::engine::{Call, EngineResult, Role, new_tokens};
use triton_specdec::lookup::Lookup;
use triton_specdec::lookup::memory::Memory;
use triton_specdec::request::task::Task;
use triton_specdec::sequence::part::Part;
use triton_specdec::sequence::{Counts, Effects, End, Event, Resources, Sequence};
use triton_specdec::tokenizer::Tokenizer;

use super::Letters;
use super::engine::{self, Engine};
use super::numbers::Numbers;

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

/// A streamed call: its number, and its results in order.
struct Stream {
    number: u64,
    results: VecDeque<EngineResult>,
}

impl Stream {
    /// The result of the whole call, token by token. A stream with an odd number ends with a token.
    /// One with an even number, or without tokens, ends with a result that has no token.
    fn new(number: u64, prefix: usize, result: EngineResult) -> Self {
        let results = match result {
            Ok(outputs) => {
                let tokens = new_tokens(&outputs, prefix, "target").unwrap();
                let ends_empty = tokens.is_empty() || number.is_multiple_of(2);
                let parts = tokens.iter().map(std::slice::from_ref);
                let last: &[i32] = &[];
                parts
                    .chain(ends_empty.then_some(last))
                    .map(|part| Ok(engine::streamed(part)))
                    .collect()
            }
            Err(error) => VecDeque::from([Err(error)]),
        };
        Self { number, results }
    }

    /// Whether all tokens were delivered.
    fn is_complete(&self) -> bool {
        let mut results = self.results.iter();
        results.all(|result| result.as_ref().is_ok_and(|it| engine::is_empty(it)))
    }

    fn next(&mut self) -> Option<Event> {
        let result = self.results.pop_front()?;
        Some(Event::Streamed {
            number: self.number,
            result,
            is_final: self.results.is_empty(),
        })
    }
}

/// Carries out the effects of a sequence.
struct Owner {
    sequence: Sequence,
    target: Engine,
    draft: Engine,
    pipelined: Pipelined,
    numbers: Numbers,
    call: Option<Call>,
    /// The streamed call in flight, with its results that were not delivered yet.
    stream: Option<Stream>,
    /// Streamed calls that were cancelled. The engine may still send some of their results.
    cancelled: Vec<Stream>,
    pipelined_calls: VecDeque<(u64, Call)>,
    parts: Vec<Part>,
    end: Option<End>,
    counts: Counts,
    lookup: Counts,
    remembered: usize,
    draft_errors: Vec<String>,
    disconnects_after: usize,
    target_calls: usize,
}

impl Owner {
    fn deliver(&mut self, event: Event) {
        let cancelled = self.target_calls >= self.disconnects_after;
        let effects = self.sequence.handle(event, cancelled);
        let had_ended = self.end.is_some();
        let is_empty = effects.call.is_none() && effects.parts.is_empty() && effects.end.is_none();
        assert!(!had_ended || is_empty, "an effect after the end");
        self.carry_out(effects);
        let rendered = self.sequence.render();
        self.parts.extend(rendered);
    }

    fn carry_out(&mut self, effects: Effects) {
        if effects.cancels_stream {
            let stream = self.stream.take().expect("a streamed call is in flight");
            self.cancelled.push(stream);
        }
        if let Some(call) = effects.call {
            self.target_calls += usize::from(call.role == Role::Target);
            // The response that ends a streamed call may arrive after its last token.
            let ended = self.stream.take_if(|stream| stream.is_complete());
            self.cancelled.extend(ended);
            assert!(self.stream.is_none(), "a call beside a streamed one");
            match call.stream {
                Some(number) => {
                    let prefix = engine::integers(&call, "input_ids").len();
                    self.stream = Some(Stream::new(number, prefix, self.target.run(call)));
                }
                None => assert!(self.call.replace(call).is_none(), "two calls at once"),
            }
        }
        if let Some(pipelined) = effects.pipelined {
            assert_eq!(pipelined.call.role, Role::Draft);
            let number = pipelined.number;
            let rejected = match self.pipelined {
                Pipelined::Rejected => true,
                Pipelined::EverySecond => number % 2 == 0,
                _ => false,
            };
            let slots = usize::from(!rejected);
            if self.pipelined_calls.len() < slots {
                self.pipelined_calls.push_back((number, pipelined.call));
            } else {
                self.sequence.reject_pipelined(number);
            }
        }
        if let Some(counts) = effects.counts {
            self.counts.drafted += counts.drafted;
            self.counts.accepted += counts.accepted;
            self.counts.rounds += counts.rounds;
            self.counts.pipelined_rounds += counts.pipelined_rounds;
            if counts.memory {
                self.remembered += counts.accepted;
            }
            if counts.lookup {
                self.lookup.drafted += counts.drafted;
                self.lookup.accepted += counts.accepted;
                self.lookup.rounds += counts.rounds;
            }
            self.counts.generated += counts.generated;
        }
        self.draft_errors.extend(effects.draft_error);
        self.parts.extend(effects.parts);
        if effects.end.is_some() {
            self.end = effects.end;
        }
    }

    /// Deliver one event.
    fn step(&mut self) {
        let early = match self.pipelined {
            Pipelined::Early | Pipelined::EverySecond => true,
            Pipelined::Anytime(_) => self.numbers.random() < 0.3,
            _ => false,
        };
        let waits = self.call.is_none() && self.stream.is_none();
        if self.pipelined != Pipelined::Never && (early || waits) && self.complete_pipelined() {
            return;
        }
        // The engine notices late that a call was cancelled.
        if let Some(event) = self.cancelled.pop().as_mut().and_then(Stream::next) {
            self.deliver(event);
        }
        if let Some(event) = self.next_streamed() {
            return self.deliver(event);
        }
        match self.call.take() {
            Some(call) => {
                let engine = match call.role {
                    Role::Target => &mut self.target,
                    Role::Draft => &mut self.draft,
                };
                let result = engine.run(call);
                self.deliver(Event::Completed {
                    result,
                    seconds: 0.01,
                });
            }
            None => {
                assert!(self.pipelined == Pipelined::Never, "no call is in flight");
                std::thread::sleep(Duration::from_millis(5));
                self.deliver(Event::Tick);
            }
        }
    }

    /// The next result of the streamed call in flight.
    fn next_streamed(&mut self) -> Option<Event> {
        let event = self.stream.as_mut()?.next();
        self.target_calls += 1;
        self.stream.take_if(|stream| stream.results.is_empty());
        event
    }

    /// Complete the oldest pipelined call; false if there is none.
    fn complete_pipelined(&mut self) -> bool {
        let Some((number, call)) = self.pipelined_calls.pop_front() else {
            return false;
        };
        let result = self.draft.run(call);
        self.deliver(Event::PipelinedCompleted {
            number,
            result,
            seconds: 0.02,
        });
        true
    }

    /// Deliver results after the end. `deliver` checks that they have no effect.
    fn deliver_late_results(&mut self) {
        while self.complete_pipelined() {}
        self.cancelled
            .extend(self.stream.take_if(|stream| stream.is_complete()));
        assert!(self.stream.is_none(), "a streamed call was not cancelled");
        while let Some(event) = self.cancelled.pop().as_mut().and_then(Stream::next) {
            self.deliver(event);
        }
        let result = Engine::target(0).run(engine::call(Role::Target, &[1]));
        self.deliver(Event::Completed {
            result,
            seconds: 0.01,
        });
        self.deliver(Event::Tick);
    }
}

impl Outcome {
    /// The text of all parts of a completed sequence.
    pub fn text(&self) -> String {
        assert_eq!(self.end, End::Completed);
        self.parts.iter().map(|part| part.text.as_str()).collect()
    }
}
