//! Cuts the proposal of a draft model where its next tokens are not worth their time.
//!
//! The target is likelier to accept a token to which the draft gives a high probability. The
//! relation is calibrated online: tokens are divided into classes by probability, and each class
//! has the share of its tokens that the target accepted. The product of these shares over a
//! proposal is the chance that the target accepts all of it, its survival.
//!
//! The next call of the draft may add tokens to the proposal. It is worth its time if the expected
//! number of these tokens, multiplied by the survival, is more than the number of tokens that usual
//! rounds generate in that time. This is the stopping rule for the largest ratio of tokens to
//! seconds (Dinkelbach 1967, "On Nonlinear Fractional Programming").
//! SpecDec++ (Huang et al. 2024, arXiv:2405.19715) stops drafts by the same survival, with a
//! trained head in place of the log probabilities.

use super::costs::Costs;
use super::estimate::survivals;

/// Classes by the probability of a token, in tenths.
const TENTHS: usize = 10;
/// The first token of a proposal has classes of its own: it continues a text that the target has
/// accepted.
const POSITIONS: usize = 2;
/// Weight, in tokens, of the first guess of a class: the draft's own probability.
const PRIOR_WEIGHT: f64 = 4.0;
/// Each new token multiplies the weight of the earlier ones of its class by this factor.
const KEPT: f64 = 0.999;

/// What a sequence does with a proposal of the draft model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Let the draft propose this many more tokens.
    Draft(usize),
    /// Let the target verify at most this many tokens of the proposal.
    Verify(usize),
}

/// How many tokens of a class the target accepted, of those that it compared.
#[derive(Clone, Copy)]
struct Class {
    accepted: f64,
    compared: f64,
}

impl Class {
    fn guessed(acceptance: f64) -> Self {
        Self {
            accepted: PRIOR_WEIGHT * acceptance,
            compared: PRIOR_WEIGHT,
        }
    }

    fn add(&mut self, accepted: bool) {
        self.accepted = KEPT * self.accepted + f64::from(u8::from(accepted));
        self.compared = KEPT * self.compared + 1.0;
    }

    fn acceptance(&self) -> f64 {
        self.accepted / self.compared
    }
}

/// The acceptance of draft tokens by their log probabilities.
pub(super) struct Survival {
    classes: [Class; TENTHS * POSITIONS],
    /// All tokens.
    any: Class,
}

impl Default for Survival {
    fn default() -> Self {
        let guess = |class| (class % TENTHS) as f64 / TENTHS as f64 + 0.5 / TENTHS as f64;
        Self {
            classes: std::array::from_fn(|class| Class::guessed(guess(class))),
            any: Class::guessed(0.7),
        }
    }
}

impl Survival {
    /// Add a round: the log probabilities of a proposal, of which the target accepted some tokens.
    pub fn add(&mut self, log_probs: &[f32], accepted: usize) {
        // The tokens after the first rejected one were not compared.
        for (index, log_prob) in log_probs.iter().take(accepted + 1).enumerate() {
            self.any.add(index < accepted);
            if let Some(class) = self.classes.get_mut(class_of(index, *log_prob)) {
                class.add(index < accepted);
            }
        }
    }

    /// Whether a proposal with these log probabilities is worth another draft call for `step`
    /// tokens. The usual speed is `speed` tokens a second.
    pub fn is_worth_more(&self, log_probs: &[f32], step: usize, speed: f64, costs: &Costs) -> bool {
        let survival = self.survivals(log_probs).last().copied().unwrap_or(1.0);
        let acceptance = self.any.acceptance();
        let added: f64 = (1..=step).map(|n| acceptance.powi(n as i32)).sum();
        survival * added > speed * costs.draft.at(step)
    }

    /// Expected successes and failures of a round, as if the target had verified its whole
    /// proposal. In fact the target accepted some of the first `drafted` tokens, and did not see
    /// the others.
    pub fn outcome(&self, log_probs: &[f32], drafted: usize, accepted: usize) -> (f64, f64) {
        if accepted < drafted {
            return (accepted as f64, 1.0);
        }
        let (mut successes, mut survival) = (accepted as f64, 1.0);
        for (index, log_prob) in log_probs.iter().enumerate().skip(drafted) {
            survival *= self.chance(index, *log_prob);
            successes += survival;
        }
        (successes, 1.0 - survival)
    }

    /// The number of tokens whose survival, the chance of the token and of all before it, is more
    /// than `least`.
    ///
    /// Whether a token is among them depends on its own log probability and on those before it, but
    /// never on a later one. Sampled answers need that: draft and target draw with the same random
    /// numbers, so a later token would reveal what the target is about to draw. A choice that
    /// depends on later tokens would favour some outcomes.
    pub fn likelier(&self, log_probs: &[f32], least: f64) -> usize {
        let survivals = self.survivals(log_probs);
        survivals.iter().take_while(|it| **it > least).count()
    }

    /// For each token, the chance that the target accepts it and all tokens before it.
    fn survivals(&self, log_probs: &[f32]) -> Vec<f64> {
        let chances = log_probs.iter().enumerate();
        survivals(chances.map(|(index, log_prob)| self.chance(index, *log_prob)))
    }

    /// The chance that the target accepts the token at this index, if it accepts all before it.
    fn chance(&self, index: usize, log_prob: f32) -> f64 {
        let class = self.classes.get(class_of(index, log_prob));
        class.map_or(0.0, Class::acceptance)
    }
}

/// The class of the token at this index of a proposal.
fn class_of(index: usize, log_prob: f32) -> usize {
    // A probability that is not a number counts as 0.
    let tenth = (f64::from(log_prob).exp() * TENTHS as f64) as usize;
    index.min(POSITIONS - 1) * TENTHS + tenth.min(TENTHS - 1)
}
