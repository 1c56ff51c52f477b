//! Compares two ways to draft by their tokens a second: a whole proposal in one call of the draft,
//! or a short one that further calls extend.
//!
//! Which way is faster depends on how well log probabilities predict acceptance, and on what an
//! additional call of the draft costs. So both ways are tried in turn, and the slower one less and
//! less often.

use super::estimate::Rounds;

/// Rounds of a turn.
const TURN: usize = 32;
/// Most turns of the faster way between two turns of the slower way.
const MOST_TURNS: usize = 16;

/// The comparison of whole and of extended proposals.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    whole: Rounds,
    extended: Rounds,
    /// Extended proposals were faster in the last comparison.
    extended_is_faster: bool,
    /// Proposals are extended in this turn.
    extends: bool,
    /// Rounds until the next turn.
    left: usize,
    /// Turns of the faster way before the next one of the slower way.
    turns: usize,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            whole: Rounds::default(),
            extended: Rounds::default(),
            extended_is_faster: false,
            extends: false,
            left: TURN,
            turns: 1,
        }
    }
}

impl Trial {
    /// Begin a round. Whether further calls may extend its proposal.
    pub fn begin_round(&mut self) -> bool {
        if self.left == 0 {
            self.next_turn();
        }
        self.left -= 1;
        self.extends
    }

    /// Add a round.
    pub fn add(&mut self, extended: bool, tokens: usize, seconds: f64) {
        match extended {
            true => self.extended.add(tokens, seconds),
            false => self.whole.add(tokens, seconds),
        }
    }

    /// The speed of the faster way, tokens a second; 0.0 before any round.
    pub fn speed(&self) -> f64 {
        self.whole.speed().max(self.extended.speed())
    }

    fn next_turn(&mut self) {
        if self.extends == self.extended_is_faster {
            self.extends = !self.extends;
            self.left = TURN;
            return;
        }
        let extended_is_faster = self.extended.speed() > self.whole.speed();
        self.turns = match extended_is_faster == self.extended_is_faster {
            true => (2 * self.turns).min(MOST_TURNS),
            false => 1,
        };
        self.extended_is_faster = extended_is_faster;
        self.extends = extended_is_faster;
        self.left = self.turns * TURN;
    }
}
