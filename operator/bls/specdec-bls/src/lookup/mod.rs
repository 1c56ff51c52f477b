//! Drafts from the text itself: what followed the longest suffix of prompt and answer that occurred
//! before. Such drafts need no draft model, and take microseconds.
//!
//! Prompt lookup (Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding) searches the prompt
//! for the last few tokens. A suffix automaton finds the longest match of any length in the prompt
//! and the answer, as SuffixDecoding does with a suffix tree (Oliaro et al. 2024,
//! arXiv:2411.04975).

pub mod automaton;
pub mod memory;
mod segment;

use std::sync::Arc;

use automaton::{Automaton, Occurrence};
use memory::Memory;

/// Number of [`Candidate::classes`].
pub const CLASSES: usize = 24;
/// The first class of candidates from the memory. Candidates from the text itself have lower ones.
const MEMORY: usize = CLASSES / 2;
/// Number of classes by the length of a match. It is added to the class of a token that followed
/// the match wherever that occurred.
const CERTAIN: usize = MEMORY / 2;

/// Draft tokens from an earlier occurrence of the last tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    pub tokens: Vec<i32>,
    /// For each token a class of its chance to be accepted, less than [`CLASSES`]. The class
    /// depends on the length of the match before the token, and on whether the same token followed
    /// the match wherever it occurred.
    pub classes: Vec<usize>,
    /// Length of the match: how many of the last tokens also occur earlier, one after another.
    pub matched: usize,
}

impl Candidate {
    /// Whether it comes from another text of the same scope.
    pub fn is_from_memory(&self) -> bool {
        self.classes.first().is_some_and(|class| *class >= MEMORY)
    }
}

/// The class of a match by its length.
fn size_class(matched: usize) -> usize {
    (matched.max(1).ilog2() as usize).min(CERTAIN - 1)
}

/// The texts of one scope.
#[derive(Clone, Debug)]
struct Scoped {
    memory: Arc<Memory>,
    scope: String,
}

/// The text of one sequence, and the search in it.
#[derive(Debug, Default)]
pub struct Lookup {
    automaton: Automaton,
    /// Number of tokens in the automaton.
    known: usize,
    min_match: usize,
    /// Also search the texts of this scope.
    scoped: Option<Scoped>,
}

impl Lookup {
    /// A search for matches of at least `min_match` tokens.
    pub fn new(min_match: usize) -> Self {
        Self {
            min_match: min_match.max(1),
            ..Self::default()
        }
    }

    /// Also search the texts of a scope. A match there is used if it is longer than the match in
    /// the text itself.
    pub fn remembering(self, memory: Arc<Memory>, scope: String) -> Self {
        Self {
            scoped: Some(Scoped { memory, scope }),
            ..self
        }
    }

    /// Whether it has every token of this text.
    pub fn is_current(&self, ids: &[i32]) -> bool {
        self.known == ids.len()
    }

    /// Learn the tokens of `ids` that are new. `ids` begins with all tokens learned before.
    pub fn extend(&mut self, ids: &[i32]) {
        for token in ids.get(self.known..).unwrap_or_default() {
            self.automaton.push(*token);
        }
        self.known = ids.len();
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        self.automaton.bytes()
    }

    /// At most `most` tokens that may follow `ids`. All of `ids` must have been learned. None if no
    /// match is long enough.
    pub fn candidate(&self, ids: &[i32], most: usize) -> Option<Candidate> {
        let own = self.own_candidate(ids, most);
        let longer = own.as_ref().map_or(0, |own| own.matched + 1);
        let remembered = self.scoped.as_ref().and_then(|scoped| {
            let least = self.min_match.max(longer);
            scoped.memory.candidate(&scoped.scope, ids, least, most)
        });
        remembered.or(own)
    }

    /// The candidate from the text itself.
    fn own_candidate(&self, ids: &[i32], most: usize) -> Option<Candidate> {
        let longest = self.automaton.longest()?;
        if longest.length < self.min_match || most == 0 {
            return None;
        }
        let mut candidate = Candidate {
            matched: longest.length,
            ..Candidate::default()
        };
        let mut at = Some(longest);
        for index in 0..most {
            // Where the earlier occurrence reaches the end of the text, it continues with the
            // candidate itself: the text repeats a period.
            let position = longest.end + index;
            let beyond = position.checked_sub(ids.len());
            let token = match beyond {
                Some(own) => candidate.tokens.get(own),
                None => ids.get(position),
            };
            let Some(&token) = token else { break };
            candidate
                .classes
                .push(self.class(at, longest.length + index));
            candidate.tokens.push(token);
            at = at.and_then(|at| self.automaton.step(at, token));
        }
        Some(candidate)
    }

    /// The class of a token after a match of `matched` tokens.
    fn class(&self, at: Option<Occurrence>, matched: usize) -> usize {
        let size = size_class(matched);
        match at.is_some_and(|at| self.automaton.is_certain(at)) {
            true => CERTAIN + size,
            false => size,
        }
    }
}
