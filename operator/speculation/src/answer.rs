//! One task from its first call to its last token, and what a client gets of it.
//!
//! An answer never waits: it says which calls it wants, is told what they gave, and goes on from
//! there on whatever thread brought the news.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::{Answered, Call, EngineError};
use crate::generation::{Chunk, Generation, Proposal};
use crate::part::Part;
use crate::policy::{FixedLength, Lengths};
use crate::task::Task;
use crate::text::{self, Detokenizer, StopText};
use crate::tokenizer::Tokenizer;

/// Longer than any proposal takes.
const PATIENCE: Duration = Duration::from_secs(1);

/// How an answer ends.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Done,
    Cancelled,
    Failed(EngineError),
}

/// Where an answer's wishes and its parts go.
pub trait Io {
    /// Make a call and tell the answer by `answered`.
    fn call(&mut self, call: Call);
    /// Make a call of the draft beside it and tell by `ahead_answered` with the same number; false
    /// while enough of those are under way.
    fn ahead(&mut self, number: u64, call: Call) -> bool;
    /// Hand out a part.
    fn part(&mut self, part: Part);
    /// Nothing follows.
    fn end(&mut self, end: End);
    /// Whether the client has gone away.
    fn cancelled(&self) -> bool;
}

/// Counts what the server did.
pub trait Meter: Send + Sync {
    /// One more chunk was generated.
    fn chunk(&self, chunk: &Chunk);
    /// The draft refused a call, in these words: an answer goes on without it.
    fn draft_failed(&self, words: &str);
}

/// What an answer works with besides its task.
pub struct Means {
    pub tokenizer: Arc<dyn Tokenizer>,
    pub lengths: Box<dyn Lengths>,
    pub meter: Arc<dyn Meter>,
    pub has_draft: bool,
    /// The draft may propose while the target verifies.
    pub ahead: bool,
}

enum State {
    /// Between two calls, or over.
    Resting,
    Drafting {
        length: usize,
    },
    /// The draft already works at this round's proposal.
    Awaiting {
        length: usize,
        since: Instant,
    },
    Verifying {
        proposal: Vec<i32>,
        seconds: f64,
        early: bool,
    },
    Plain {
        length: usize,
    },
}

/// A stretch without a draft.
#[derive(Default)]
struct Stretch {
    left: usize,
    tokens: usize,
    begun: Option<Instant>,
}

/// What the draft works at beside the target.
struct Coming {
    number: u64,
    prefix: usize,
    length: usize,
    /// The guess and the proposal behind it; empty where there was none.
    found: Option<Vec<i32>>,
    seconds: f64,
}

/// One task being answered.
pub struct Answer {
    generation: Generation,
    means: Means,
    state: State,
    stretch: Stretch,
    coming: Option<Coming>,
    number: u64,
    detokenizer: Detokenizer,
    stop: Option<StopText>,
    stopped: bool,
    surplus: usize,
    part: Part,
    tokens: Vec<i32>,
    log_probs: Vec<f32>,
}

impl Answer {
    pub fn new(task: Arc<Task>, means: Means) -> Self {
        // A sampled answer shall follow from its seed alone, not from what was ready in time.
        let ahead = means.ahead && task.seed.is_none() && !task.use_draft_logits;
        let stop = (!task.stop_texts.is_empty()).then(|| StopText::new(&task.stop_texts));
        Self {
            generation: Generation::new(task),
            means: Means { ahead, ..means },
            state: State::Resting,
            stretch: Stretch::default(),
            coming: None,
            number: 0,
            detokenizer: Detokenizer::default(),
            stop,
            stopped: false,
            surplus: 0,
            part: Part::default(),
            tokens: Vec::new(),
            log_probs: Vec::new(),
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
                let remaining = self.generation.remaining();
                self.stretch = Stretch {
                    left: match self.means.lengths.plain_tokens() {
                        0 => remaining,
                        tokens => tokens.min(remaining),
                    },
                    tokens: 0,
                    begun: Some(Instant::now()),
                };
                self.plain(io);
            }
            wanted => {
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
            Some(coming) => match coming.found.as_deref() {
                Some([guess, tokens @ ..])
                    if !tokens.is_empty() && self.generation.tokens().last() == Some(guess) =>
                {
                    let tokens = tokens[..length.min(tokens.len())].to_vec();
                    let proposal = Proposal {
                        tokens,
                        logits: None,
                    };
                    self.verify(proposal, coming.seconds, true, io);
                }
                _ => self.propose(length, io),
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
        match result.and_then(|answer| self.generation.read_proposal(&answer, length)) {
            Ok(proposal) => self.verify(proposal, seconds, false, io),
            Err(error) => self.without_draft(&error.words, io),
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
        let call = self.generation.verification(&proposal);
        let tokens = proposal.tokens;
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
        if going && self.stop.is_none() {
            // The engines need not wait for the text.
            self.go_on(io);
            return self.render(&chunk, io);
        }
        self.render(&chunk, io);
        if chunk.finished || self.stopped {
            self.finish(io);
        } else if going {
            self.go_on(io);
        } else {
            self.close(End::Cancelled, io);
        }
    }

    fn render(&mut self, chunk: &Chunk, io: &mut dyn Io) {
        let (kept, text) = if self.stop.is_some() {
            self.until_stop(&chunk.tokens)
        } else if self.task().stream {
            let tokenizer = self.means.tokenizer.as_ref();
            let text = self.detokenizer.push(tokenizer, &chunk.tokens);
            (chunk.tokens.len(), text)
        } else {
            (chunk.tokens.len(), String::new())
        };
        self.add(chunk, kept, text);
        self.tokens.extend_from_slice(&chunk.tokens[..kept]);
        let log_probs = &chunk.log_probs[..kept.min(chunk.log_probs.len())];
        self.log_probs.extend_from_slice(log_probs);
        if self.task().stream {
            io.part(self.part.clone());
        }
    }

    fn until_stop(&mut self, tokens: &[i32]) -> (usize, String) {
        // Token by token: a stop word may end inside a token that is not the chunk's last.
        let mut text = String::new();
        for (index, token) in tokens.iter().enumerate() {
            let tokenizer = self.means.tokenizer.as_ref();
            let piece = self.detokenizer.push(tokenizer, &[*token]);
            match self.stop.as_mut().and_then(|stop| stop.cut(&piece)) {
                Some(cut) => {
                    self.stopped = true;
                    // A character that this token begins decodes to something as well.
                    self.surplus = piece.chars().count() - cut + self.detokenizer.held;
                    text.push_str(text::head(&piece, cut));
                    return (index + 1, text);
                }
                None => text.push_str(&piece),
            }
        }
        (tokens.len(), text)
    }

    fn add(&mut self, chunk: &Chunk, kept: usize, text: String) {
        let log_probs = &chunk.log_probs[..kept.min(chunk.log_probs.len())];
        let sum: f64 = log_probs.iter().copied().map(f64::from).sum();
        self.part = Part {
            text,
            tokens: kept,
            log_probs: log_probs.to_vec(),
            cum_log_prob: self.part.cum_log_prob + sum,
            drafted: self.part.drafted + chunk.drafted,
            accepted: self.part.accepted + chunk.accepted,
            rounds: self.part.rounds + chunk.rounds,
            extras: chunk.extras.clone(),
        };
    }

    fn finish(&mut self, io: &mut dyn Io) {
        if !self.task().stream {
            io.part(self.whole());
        } else if !self.stopped {
            let rest = self.detokenizer.flush(self.means.tokenizer.as_ref());
            if !rest.is_empty() {
                self.add(&Chunk::default(), 0, rest);
                io.part(self.part.clone());
            }
        }
        self.close(End::Done, io);
    }

    fn whole(&mut self) -> Part {
        let mut ids = Vec::new();
        if !self.task().exclude_input {
            ids.extend_from_slice(&self.task().prompt);
        }
        ids.extend_from_slice(&self.tokens);
        let text = self.means.tokenizer.decode(&ids);
        Part {
            // Characters of the last token that lie behind a stop word.
            text: text::without_last(&text, self.surplus).to_owned(),
            tokens: self.tokens.len(),
            log_probs: std::mem::take(&mut self.log_probs),
            ..self.part.clone()
        }
    }

    fn fail(&mut self, error: EngineError, io: &mut dyn Io) {
        let end = if error.gone {
            let words = format!("{error}: ask again when the server has started again");
            End::Failed(EngineError { words, gone: true })
        } else if io.cancelled() {
            End::Cancelled
        } else {
            End::Failed(error)
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
