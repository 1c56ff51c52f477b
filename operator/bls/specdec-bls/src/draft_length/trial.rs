//! Compares two ways to draft by what they give: a number of tokens in a number of seconds.
//!
//! Whether cut proposals are faster depends on how well log probabilities predict acceptance, and on
//! what an additional call of the draft costs. So both ways are tried in turn, and the slower one
//! less and less often.

use super::estimate::Rounds;

/// Rounds of a turn.
const TURN: usize = 32;
/// Most turns between two of the slower way.
const MOST_TURNS: usize = 16;
/// The comparison of whole and of cut proposals.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    whole: Rounds,
    cut: Rounds,
    /// Cut proposals were faster in the last comparison.
    cut_is_faster: bool,
    /// Proposals are cut in this turn.
    cuts: bool,
    /// Rounds until the next turn.
    left: usize,
    /// Turns of the faster way before the next one of the slower way.
    turns: usize,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            whole: Rounds::default(),
            cut: Rounds::default(),
            cut_is_faster: false,
            cuts: false,
            left: TURN,
            turns: 1,
        }
    }
}

impl Trial {
    /// Whether the next round cuts its proposal.
    pub fn cuts(&mut self) -> bool {
        if self.left == 0 {
            self.next_turn();
        }
        self.left -= 1;
        self.cuts
    }

    /// Add a round.
    pub fn add(&mut self, cut: bool, tokens: usize, seconds: f64) {
        match cut {
            true => self.cut.add(tokens, seconds),
            false => self.whole.add(tokens, seconds),
        }
    }

    /// The speed of the faster way, tokens a second; 0.0 before any round.
    pub fn speed(&self) -> f64 {
        self.whole.speed().max(self.cut.speed())
    }

    fn next_turn(&mut self) {
        if self.cuts == self.cut_is_faster {
            self.cuts = !self.cuts;
            self.left = TURN;
            return;
        }
        let cut_is_faster = self.cut.speed() > self.whole.speed();
        self.turns = match cut_is_faster == self.cut_is_faster {
            true => (2 * self.turns).min(MOST_TURNS),
            false => 1,
        };
        self.cut_is_faster = cut_is_faster;
        self.cuts = cut_is_faster;
        self.left = self.turns * TURN;
    }
}
