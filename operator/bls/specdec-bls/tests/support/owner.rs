//! Owns one sequence, and carries out its effects with simulated engines.

use std::collections::VecDeque;
use std::time::Duration;

use triton_specdec::engine::{Call, EngineResult, Role, new_tokens};
use triton_specdec::sequence::part::Part;
use triton_specdec::sequence::{Counts, Effects, End, Event, Sequence};

use super::engine::{self, Engine};
use super::numbers::Numbers;
use super::run::Pipelined;

/// A streamed call: its number, and its results in order.
pub struct Stream {
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
pub struct Owner {
    pub sequence: Sequence,
    pub target: Engine,
    pub draft: Engine,
    pub pipelined: Pipelined,
    pub numbers: Numbers,
    pub call: Option<Call>,
    /// The streamed call in flight, with its results that were not delivered yet.
    pub stream: Option<Stream>,
    /// Streamed calls that were cancelled. The engine may still send some of their results.
    pub cancelled: Vec<Stream>,
    pub pipelined_calls: VecDeque<(u64, Call)>,
    pub parts: Vec<Part>,
    pub end: Option<End>,
    pub counts: Counts,
    pub lookup: Counts,
    pub remembered: usize,
    pub draft_errors: Vec<String>,
    pub disconnects_after: usize,
    pub target_calls: usize,
}

impl Owner {
    pub fn deliver(&mut self, event: Event) {
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
    pub fn step(&mut self) {
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
    pub fn deliver_late_results(&mut self) {
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
