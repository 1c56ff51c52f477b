//! Finds the first of many words that ends in a growing stream, at a cost independent of their
//! number.

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
    /// Find these words of bytes. Empty ones are ignored; None without any other.
    pub fn new<P: AsRef<[u8]>>(words: impl IntoIterator<Item = P>) -> Option<Self> {
        let words = words.into_iter();
        let words: Vec<P> = words.filter(|word| !word.as_ref().is_empty()).collect();
        if words.is_empty() {
            return None;
        }
        let automaton = NFA::builder()
            // The word that ends first, whichever begins first.
            .match_kind(MatchKind::Standard)
            // A prefilter skips to where a word may begin, which a single step cannot use.
            .prefilter(false)
            .build(&words);
        // It has a state for each byte, which `request::limits` bounds far below the two billion
        // that it may have, and every automaton built so has an unanchored start.
        let automaton = automaton.expect("an automaton of bounded words");
        let state = automaton
            .start_state(Anchored::No)
            .expect("an unanchored start");
        Some(Self { automaton, state })
    }

    /// Take the stream's next byte; whether a word ends with it.
    pub fn step(&mut self, byte: u8) -> bool {
        self.state = self.automaton.next_state(Anchored::No, self.state, byte);
        self.automaton.is_match(self.state)
    }
}

/// Finds stop words of token ids in a growing answer.
#[derive(Clone, Debug)]
pub struct StopTokens(Option<Matcher>);

impl StopTokens {
    /// Find these words. As in the engines, a word may begin in the prompt, but not end there.
    pub fn new(words: &[Vec<i32>], prompt: &[i32]) -> Self {
        let longest = words.iter().map(Vec::len).max().unwrap_or(0);
        let words = words
            .iter()
            .map(|word| word.iter().flat_map(|token| token.to_le_bytes()));
        let mut stop = Self(Matcher::new(words.map(Iterator::collect::<Vec<u8>>)));
        for token in prompt.iter().skip(prompt.len().saturating_sub(longest)) {
            stop.end_with(*token);
        }
        stop
    }

    /// Whether a word ends with the next token. All words have whole tokens, so a match that ends
    /// with a token also begins with one.
    pub fn end_with(&mut self, token: i32) -> bool {
        self.0.as_mut().is_some_and(|matcher| {
            let [.., last] = token.to_le_bytes().map(|byte| matcher.step(byte));
            last
        })
    }
}
