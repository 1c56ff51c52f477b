//! How many draft tokens a round proposes: fixed, or the length that gives most tokens a second.
//!
//! With acceptance rate a, a round of g draft tokens gives on average
//!
//! ```text
//! E(g) = 1 + a + ... + a^g = (1 - a^(g+1)) / (1 - a)
//! ```
//!
//! tokens (Leviathan et al. 2023, arXiv:2211.17192, equation 1) and takes D(g) + V(g) seconds, one
//! draft call and one verification; decoding without a draft gives one token in P seconds. The
//! adaptive policy chooses the g that maximises E(g) / (D(g) + V(g)), or none where 1 / P is more,
//! as goodput-driven speculation does (Liu et al. 2024, arXiv:2406.14066). All of it is measured:
//! a per request, drawn towards the server's; D, V and P per number of prompts in flight, because
//! a loaded engine charges for every token that an idle one verifies for nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::estimate::Acceptance;
use crate::lock::locked;

mod costs;

use costs::Costs;
pub use costs::expected_tokens;

/// Tokens of a call without a draft, between two looks at what would be fastest.
const PLAIN_TOKENS: usize = 16;
/// What another length must promise before it is taken: at once, and once a second.
const BIG_GAIN: f64 = 1.1;
const SMALL_GAIN: f64 = 1.01;
const SETTLE_SECONDS: f64 = 1.0;
/// Seconds between rounds of another length, which keep the estimates of other lengths true, and
/// the same while the draft rests, when a round costs more than it teaches.
const PROBE_SECONDS: f64 = 1.0;
const REST_SECONDS: f64 = 2.0;
/// Other lengths than the chosen one, in turn; one never measured at this load comes after so many
/// rounds already.
const OFFSETS: [isize; 4] = [1, -1, 2, -2];
const QUIET_ROUNDS: usize = 4;

/// Draft lengths of one answer.
pub trait Lengths: Send {
    /// Draft tokens of the next round; 0 is a stretch without a draft.
    fn length(&mut self) -> usize;
    /// Tokens of a stretch without a draft, 0 for the rest of the answer.
    fn plain_tokens(&self) -> usize;
    /// A round is over: what it offered, what was accepted, how long draft and target took.
    fn round(&mut self, drafted: usize, accepted: usize, draft_seconds: f64, seconds: f64);
    /// A stretch without a draft is over.
    fn plain(&mut self, tokens: usize, seconds: f64);
    /// The answer is over; a second time changes nothing.
    fn close(&mut self);
}

/// The same number of draft tokens in every round; 0 never drafts.
#[derive(Clone, Copy, Debug)]
pub struct FixedLength(pub usize);

impl Lengths for FixedLength {
    fn length(&mut self) -> usize {
        self.0
    }
    fn plain_tokens(&self) -> usize {
        0
    }
    fn round(&mut self, _: usize, _: usize, _: f64, _: f64) {}
    fn plain(&mut self, _: usize, _: f64) {}
    fn close(&mut self) {}
}

/// Hears every length that an answer settles on.
pub type Tell = Box<dyn FnMut(usize) + Send>;
/// Seconds, monotonic.
pub type Clock = Box<dyn Fn() -> f64 + Send>;

/// What all answers of this server share: costs, the server's acceptance, probes.
#[derive(Clone)]
pub struct AdaptiveLength(Arc<Mutex<Shared>>);

impl AdaptiveLength {
    /// Lengths from `least` to `most`, `start` until something is measured.
    ///
    /// With `least` 0 the draft may rest altogether. `tell` is called while other answers wait:
    /// it must be quick and must not come back here.
    pub fn new(least: usize, most: usize, start: usize, tell: Tell, clock: Clock) -> Self {
        let most = most.max(least);
        let begun = clock();
        Self(Arc::new(Mutex::new(Shared {
            least,
            most,
            start: start.clamp(least, most),
            tell,
            clock,
            acceptance: Acceptance::default(),
            costs: HashMap::new(),
            answers: 0,
            probed: begun,
            rested: begun,
            turn: 0,
        })))
    }

    /// The policy of one more answer in flight.
    pub fn answer(&self) -> AdaptiveAnswer {
        let mut shared = locked(&self.0);
        shared.answers += 1;
        AdaptiveAnswer {
            own: Acceptance::default(),
            chosen: shared.start,
            changed: (shared.clock)(),
            server: Some(Arc::clone(&self.0)),
        }
    }
}

/// Draft lengths of one answer; see [`AdaptiveLength`]. Dropping it closes it.
pub struct AdaptiveAnswer {
    /// None after the end.
    server: Option<Arc<Mutex<Shared>>>,
    own: Acceptance,
    chosen: usize,
    /// Seconds at which `chosen` changed.
    changed: f64,
}

impl AdaptiveAnswer {
    fn choose(&mut self, shared: &mut Shared) {
        let now = (shared.clock)();
        let acceptance = self.own.value(now, Some(&shared.acceptance));
        let (least, most) = (shared.least, shared.most);
        let costs = shared.costs();
        if costs.verify.count == 0 && costs.plain.count == 0 {
            return;
        }
        let (mut best, mut fastest) = (least, costs.speed(least, acceptance));
        for length in least + 1..=most {
            let speed = costs.speed(length, acceptance);
            if speed > fastest {
                (best, fastest) = (length, speed);
            }
        }
        let settled = now - self.changed > SETTLE_SECONDS;
        let needed = if settled { SMALL_GAIN } else { BIG_GAIN };
        if best != self.chosen && fastest > needed * costs.speed(self.chosen, acceptance) {
            self.chosen = best;
            self.changed = now;
            (shared.tell)(best);
        }
    }
}

impl Lengths for AdaptiveAnswer {
    /// The best length, sometimes another one to learn from.
    fn length(&mut self) -> usize {
        let Some(server) = self.server.clone() else {
            return self.chosen;
        };
        let mut shared = locked(&server);
        self.choose(&mut shared);
        shared.probe(self.chosen).unwrap_or(self.chosen)
    }

    /// A stretch, then another look.
    fn plain_tokens(&self) -> usize {
        PLAIN_TOKENS
    }

    fn round(&mut self, drafted: usize, accepted: usize, draft_seconds: f64, seconds: f64) {
        let Some(server) = &self.server else { return };
        let mut shared = locked(server);
        let now = (shared.clock)();
        shared.costs().verify.add(drafted, seconds);
        if drafted == 0 {
            return;
        }
        shared.costs().draft.add(drafted, draft_seconds);
        let resting = self.chosen == 0 && accepted == drafted;
        if resting && self.own.value(now, Some(&shared.acceptance)) < 0.5 {
            // It went better than expected while the draft rests: the next look probes again.
            shared.probed = f64::NEG_INFINITY;
        }
        self.own.add(drafted, accepted, now);
        shared.acceptance.add(drafted, accepted, now);
    }

    fn plain(&mut self, tokens: usize, seconds: f64) {
        let Some(server) = &self.server else { return };
        if tokens > 0 {
            locked(server).costs().plain.add(seconds / tokens as f64);
        }
    }

    fn close(&mut self) {
        if let Some(server) = self.server.take() {
            locked(&server).answers -= 1;
        }
    }
}

impl Drop for AdaptiveAnswer {
    fn drop(&mut self) {
        self.close();
    }
}

struct Shared {
    least: usize,
    most: usize,
    start: usize,
    tell: Tell,
    clock: Clock,
    acceptance: Acceptance,
    /// By the bits that the number of answers in flight takes.
    costs: HashMap<u32, Costs>,
    answers: usize,
    /// Seconds of the last probe, and of the last stretch without a draft that was one.
    probed: f64,
    rested: f64,
    turn: usize,
}

impl Shared {
    /// Costs at the present load: numbers of prompts in flight up to twice apart are alike.
    fn costs(&mut self) -> &mut Costs {
        let load = usize::BITS - self.answers.leading_zeros();
        self.costs.entry(load).or_default()
    }

    /// Another length to try now, for what it teaches; None mostly.
    fn probe(&mut self, chosen: usize) -> Option<usize> {
        let now = (self.clock)();
        let (least, most, turn) = (self.least, self.most, self.turn);
        let (since, since_rest) = (now - self.probed, now - self.rested);
        let costs = self.costs();
        costs.quiet += 1;
        if least == 0 && chosen > 0 && costs.plain_is_due(since_rest) {
            costs.quiet = 0;
            self.rested = now;
            return Some(0);
        }
        let offset = OFFSETS[turn % OFFSETS.len()];
        let other = chosen.saturating_add_signed(offset).max(least).max(1);
        let other = other.min(most);
        let fresh = costs.quiet > QUIET_ROUNDS && !costs.verify.knows(other);
        let pause = if chosen > 0 {
            PROBE_SECONDS
        } else {
            REST_SECONDS
        };
        if since < pause && !fresh {
            return None;
        }
        costs.quiet = 0;
        self.turn += 1;
        self.probed = now;
        (other != chosen).then_some(other)
    }
}
