//! A lookup's candidate that was not verified. The tokens that the target generates in its place
//! show which of its tokens would have been accepted, so the policy learns from it at no cost.

use super::tokens::common_prefix;
use crate::lookup::Candidate;

pub struct UnusedCandidate {
    candidate: Candidate,
    /// Number of tokens before it.
    start: usize,
}

impl UnusedCandidate {
    pub fn new(candidate: Candidate, start: usize) -> Self {
        Self { candidate, start }
    }

    /// The classes of the tokens that were compared with `ids`, and how many of them agreed. None
    /// while more tokens are needed.
    pub fn outcome(&self, ids: &[i32]) -> Option<(&[usize], usize)> {
        let Candidate {
            tokens, classes, ..
        } = &self.candidate;
        let actual = ids.get(self.start..).unwrap_or_default();
        let agreed = common_prefix(tokens, actual);
        if agreed == tokens.len() {
            return Some((classes, agreed));
        }
        let differs = agreed < actual.len();
        differs.then(|| (classes.get(..=agreed).unwrap_or(classes), agreed))
    }
}
