//! Where an answer stands between two calls.

use std::time::Instant;

/// What an answer waits for.
pub enum State {
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
pub struct Stretch {
    pub left: usize,
    pub tokens: usize,
    pub begun: Option<Instant>,
}

impl Stretch {
    /// So many tokens, 0 for all that remain.
    pub fn of(tokens: usize, remaining: usize) -> Self {
        let left = if tokens == 0 {
            remaining
        } else {
            tokens.min(remaining)
        };
        Self {
            left,
            tokens: 0,
            begun: Some(Instant::now()),
        }
    }
}

/// What the draft works at beside the target.
pub struct Coming {
    pub number: u64,
    pub prefix: usize,
    pub length: usize,
    /// The guess and the proposal behind it; empty where there was none.
    pub found: Option<Vec<i32>>,
    pub seconds: f64,
}

impl Coming {
    /// At most `length` tokens behind the answer so far, if the draft guessed its last one.
    pub fn behind(&self, answer: &[i32], length: usize) -> Option<Vec<i32>> {
        let (guess, tokens) = self.found.as_deref()?.split_first()?;
        let fits = !tokens.is_empty() && answer.last() == Some(guess);
        fits.then(|| tokens[..length.min(tokens.len())].to_vec())
    }
}
