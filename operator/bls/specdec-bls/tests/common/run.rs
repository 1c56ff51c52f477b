//! One answer made with these engines, and every order in which they may answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use triton_specdec::answer::{Answer, End, Io, Means, Meter};
use triton_specdec::chunk::Chunk;
use triton_specdec::engine::{Call, Role};
use triton_specdec::part::Part;
use triton_specdec::policy::{FixedLength, Lengths};
use triton_specdec::task::Task;
use triton_specdec::tokenizer::Tokenizer;

use super::Letters;
use super::model::{self, Model};
use super::numbers::Numbers;

/// What an answer has cost.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub drafted: usize,
    pub accepted: usize,
    pub rounds: usize,
    /// Rounds that needed no draft call of their own.
    pub early: usize,
    pub generated: usize,
    pub reasons: Vec<String>,
}

#[derive(Default)]
struct Counting(Mutex<Counts>);

impl Meter for Counting {
    fn chunk(&self, chunk: &Chunk) {
        let mut counts = self.0.lock().unwrap();
        counts.drafted += chunk.drafted;
        counts.accepted += chunk.accepted;
        counts.rounds += chunk.rounds;
        counts.early += usize::from(chunk.early);
        counts.generated += chunk.tokens.len();
    }
    fn draft_failed(&self, words: &str) {
        self.0.lock().unwrap().reasons.push(words.to_owned());
    }
}

/// When a call of the draft beside the target's is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// There are none: the answer may not draft ahead.
    Off,
    /// Before the target's.
    Early,
    /// When nothing else is under way.
    Late,
    /// At any time behind that, drawn from this seed; later ones are refused meanwhile.
    Anytime(u32),
    /// Every one is refused.
    Refused,
    /// Never: the draft died.
    Never,
}

/// Holds an answer's wishes until its engines see to them.
struct Desk {
    call: Option<Call>,
    beside: VecDeque<(u64, Call)>,
    /// Calls beside the target's at once.
    room: usize,
    parts: Vec<Part>,
    end: Option<End>,
    /// Calls of the target after which the client has gone.
    leaves_after: usize,
    targets: usize,
}

impl Io for Desk {
    fn call(&mut self, call: Call) {
        assert_eq!(self.end, None, "a call behind the end");
        self.targets += usize::from(call.role == Role::Target);
        assert!(self.call.replace(call).is_none(), "two calls at once");
    }
    fn ahead(&mut self, number: u64, call: Call) -> bool {
        assert_eq!(call.role, Role::Draft);
        let free = self.beside.len() < self.room;
        if free {
            self.beside.push_back((number, call));
        }
        free
    }
    fn part(&mut self, part: Part) {
        assert_eq!(self.end, None, "a part behind the end");
        self.parts.push(part);
    }
    fn end(&mut self, end: End) {
        assert_eq!(self.end.replace(end), None, "two ends");
    }
    fn cancelled(&self) -> bool {
        self.targets >= self.leaves_after
    }
}

/// One answer to be made.
pub struct Run {
    pub target: Model,
    pub draft: Option<Model>,
    pub beside: Beside,
    pub tokenizer: Arc<dyn Tokenizer>,
    /// As many as the task says without them.
    pub lengths: Option<Box<dyn Lengths>>,
    /// Calls of the target after which the client has gone.
    pub leaves_after: usize,
}

/// What came of it.
pub struct Made {
    pub parts: Vec<Part>,
    pub end: End,
    pub counts: Counts,
    pub target: Model,
    /// Without calls where there is none.
    pub draft: Model,
}

impl Run {
    /// With engines of these seeds; a draft of the target's own seed proposes what it decides.
    pub fn new(target: u64, draft: impl Into<Option<u64>>) -> Self {
        Self {
            target: Model::target(target),
            draft: draft.into().map(Model::draft),
            beside: Beside::Off,
            tokenizer: Arc::new(Letters),
            lengths: None,
            leaves_after: usize::MAX,
        }
    }

    /// Answer to the end, and tell afterwards what came too late.
    pub fn make(self, task: Task) -> Made {
        let meter = Arc::new(Counting::default());
        let fixed = Box::new(FixedLength(task.draft_tokens));
        let means = Means {
            tokenizer: self.tokenizer,
            lengths: self.lengths.unwrap_or(fixed),
            meter: Arc::clone(&meter) as _,
            has_draft: self.draft.is_some(),
            ahead: self.beside != Beside::Off,
        };
        let mut desk = Desk {
            call: None,
            beside: VecDeque::new(),
            room: usize::from(self.beside != Beside::Refused),
            parts: Vec::new(),
            end: None,
            leaves_after: self.leaves_after,
            targets: 0,
        };
        let mut work = Work {
            answer: Answer::new(Arc::new(task), means),
            target: self.target,
            draft: self.draft.unwrap_or_else(|| Model::draft(0)),
            beside: self.beside,
            numbers: Numbers::new(match self.beside {
                Beside::Anytime(seed) => seed,
                _ => 0,
            }),
        };
        work.answer.begin(&mut desk);
        while desk.end.is_none() {
            work.step(&mut desk);
        }
        work.too_late(&mut desk);
        let counts = meter.0.lock().unwrap().clone();
        Made {
            parts: desk.parts,
            end: desk.end.unwrap(),
            counts,
            target: work.target,
            draft: work.draft,
        }
    }
}

struct Work {
    answer: Answer,
    target: Model,
    draft: Model,
    beside: Beside,
    numbers: Numbers,
}

impl Work {
    /// One piece of news for the answer.
    fn step(&mut self, desk: &mut Desk) {
        let before = match self.beside {
            Beside::Early => true,
            Beside::Anytime(_) => self.numbers.random() < 0.3,
            _ => false,
        };
        let waits = desk.call.is_none();
        if self.beside != Beside::Never && (before || waits) && self.step_beside(desk) {
            return;
        }
        match desk.call.take() {
            Some(call) => {
                let engine = match call.role {
                    Role::Target => &mut self.target,
                    Role::Draft => &mut self.draft,
                };
                let result = engine.answer(call);
                self.answer.answered(result, 0.01, desk);
            }
            None => {
                assert!(self.beside == Beside::Never, "nothing is under way");
                std::thread::sleep(Duration::from_millis(5));
                self.answer.tick(desk);
            }
        }
    }

    fn step_beside(&mut self, desk: &mut Desk) -> bool {
        let Some((number, call)) = desk.beside.pop_front() else {
            return false;
        };
        let result = self.draft.answer(call);
        self.answer.ahead_answered(number, result, 0.02, desk);
        true
    }

    /// Whatever is still under way comes back: nobody may notice.
    fn too_late(&mut self, desk: &mut Desk) {
        while self.step_beside(desk) {}
        let late = Model::target(0).answer(model::call(Role::Target, &[1]));
        self.answer.answered(late, 0.01, desk);
        self.answer.tick(desk);
    }
}

impl Made {
    /// The text of all parts, of an answer that came to its end.
    pub fn text(&self) -> String {
        assert_eq!(self.end, End::Done);
        self.parts.iter().map(|part| part.text.as_str()).collect()
    }
}
