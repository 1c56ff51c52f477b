//! How many tokens of a lookup's candidate are worth their verification.
//!
//! If the target accepts all tokens before a candidate token, it accepts that token with a
//! probability that the token's class has shown so far. The survival of a token is the product of
//! these probabilities up to the token: the chance that the target accepts it and all before it.
//! The expected tokens of a round are the sum of all survivals and the target's own token, as with
//! dynamic draft lengths (SpecDec++, Huang et al. 2024, arXiv:2405.19715).

use super::costs::Costs;
use super::estimate::{Acceptance, survivals};
use crate::lookup::CLASSES;

/// The first guess for each class. The columns are lengths of the match: from 1, 2, 4, 8, 16 and 32
/// tokens on. The first row is for occurrences that disagree about the next token, the second for
/// occurrences that agree. The last two rows are the same for the memory. The guesses are below the
/// results for the texts of `make bench NAME=drafting`: if a guess is too low, candidates that were
/// not verified raise the estimate at no cost. A match in another text predicts a token at most as
/// well as a match in the text itself, so no guess for the memory is higher.
const GUESSES: [f64; CLASSES] = [
    0.1, 0.1, 0.15, 0.2, 0.3, 0.4, //
    0.2, 0.35, 0.5, 0.7, 0.85, 0.95, //
    0.1, 0.1, 0.1, 0.15, 0.2, 0.3, //
    0.15, 0.25, 0.4, 0.6, 0.75, 0.85,
];

/// The acceptance of candidate tokens, by their class.
#[derive(Clone, Debug)]
pub(super) struct ByClass([Acceptance; CLASSES]);

impl Default for ByClass {
    fn default() -> Self {
        Self(GUESSES.map(Acceptance::guessed))
    }
}

impl ByClass {
    /// Add the verification of a candidate's tokens, of which the target accepted some.
    pub fn add(&mut self, classes: &[usize], accepted: usize, now: f64) {
        // The tokens after the first rejected one were not compared.
        for (index, class) in classes.iter().take(accepted + 1).enumerate() {
            if let Some(acceptance) = self.0.get_mut(*class) {
                acceptance.add(1, usize::from(index < accepted), now);
            }
        }
    }

    /// For each token, the chance that the target accepts it and all tokens before it.
    pub fn survivals(&self, classes: &[usize], now: f64, prior: &Self) -> Vec<f64> {
        let chance = |class: &usize| {
            let own = self.0.get(*class)?;
            Some(own.value(now, prior.0.get(*class)))
        };
        let chances = classes.iter().map(|class| chance(class).unwrap_or(0.0));
        survivals(chances)
    }
}

/// A round of a lookup has to be faster than the alternative by this factor. If acceptance is
/// overestimated, rounds are wasted. If it is underestimated, the only loss is that a useful
/// candidate is not verified.
pub(super) const GAIN: f64 = 1.15;

/// The number of candidate tokens with the most tokens a second, and that speed. 0 if the target
/// alone is faster. The round costs `more` seconds besides its verification.
pub(super) fn fastest(survivals: &[f64], costs: &Costs, more: f64) -> (usize, f64) {
    let mut best = (0, GAIN * costs.speed(0, 0.0));
    let mut expected = 1.0;
    for (index, survival) in survivals.iter().enumerate() {
        expected += survival;
        let seconds = costs.verify.at(index + 1);
        if seconds <= 0.0 {
            // Nothing was measured: the first round measures it.
            return (survivals.len(), 0.0);
        }
        let speed = expected / (seconds + more);
        if speed > best.1 {
            best = (index + 1, speed);
        }
    }
    best
}
