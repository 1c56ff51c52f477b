//! Finds stop words in a growing stream of bytes or tokens.
//!
//! The cost of a byte does not depend on the number of stop words: a request may have many.

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};

/// An Aho-Corasick automaton (Aho and Corasick 1975) and its state after the stream so far.
#[derive(Clone, Debug)]
pub struct Matcher {
    automaton: NFA,
    state: StateID,
}

impl Matcher {
    /// A search for these patterns. Empty ones are ignored; None if no other is left.
    pub fn new<P: AsRef<[u8]>>(patterns: impl IntoIterator<Item = P>) -> Option<Self> {
        let patterns = patterns.into_iter();
        let patterns: Vec<P> = patterns.filter(|item| !item.as_ref().is_empty()).collect();
        if patterns.is_empty() {
            return None;
        }
        let automaton = NFA::builder()
            // Report the pattern that ends first, even if another one began earlier.
            .match_kind(MatchKind::Standard)
            // A prefilter skips bytes of a whole text. Single steps cannot use it.
            .prefilter(false)
            .build(&patterns);
        // Building fails above two billion states. There is at most one for each byte of the
        // patterns, whose number `request::limits` keeps far lower. Every automaton that is built
        // this way has an unanchored start.
        let automaton = automaton.expect("an automaton of bounded patterns");
        let state = automaton
            .start_state(Anchored::No)
            .expect("an unanchored start");
        Some(Self { automaton, state })
    }

    /// Add the stream's next byte. Returns whether a pattern ends with it.
    pub fn step(&mut self, byte: u8) -> bool {
        self.state = self.automaton.next_state(Anchored::No, self.state, byte);
        self.automaton.is_match(self.state)
    }
}

/// Finds stop words that are token ids in a growing answer.
#[derive(Clone, Debug)]
pub struct StopTokens(Option<Matcher>);

impl StopTokens {
    /// A search for these stop words. As in the engines, a stop word may begin in the prompt, but
    /// must end in the answer.
    pub fn new(stop_words: &[Vec<i32>], prompt: &[i32]) -> Self {
        let longest = stop_words.iter().map(Vec::len).max().unwrap_or(0);
        let patterns = stop_words
            .iter()
            .map(|word| word.iter().flat_map(|token| token.to_le_bytes()));
        let mut stop = Self(Matcher::new(patterns.map(Iterator::collect::<Vec<u8>>)));
        for token in prompt.iter().skip(prompt.len().saturating_sub(longest)) {
            stop.push(*token);
        }
        stop
    }

    /// Add the next token. Returns whether a stop word ends with it. All stop words are whole
    /// tokens, so a match that ends with a token also begins with one.
    pub fn push(&mut self, token: i32) -> bool {
        self.0.as_mut().is_some_and(|matcher| {
            let [.., last] = token.to_le_bytes().map(|byte| matcher.step(byte));
            last
        })
    }
}
