//! Finds the first of many sequences that ends in a growing stream, however many there are.

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};

/// An Aho-Corasick automaton (Aho and Corasick 1975) and where in it the stream stands.
#[derive(Clone, Debug)]
pub struct Matcher {
    automaton: NFA,
    state: StateID,
}

impl Matcher {
    /// Looks for these sequences; None without any, empty ones are ignored.
    pub fn new<P: AsRef<[u8]>>(sequences: impl IntoIterator<Item = P>) -> Option<Self> {
        let sequences = sequences.into_iter();
        let sequences: Vec<P> = sequences.filter(|one| !one.as_ref().is_empty()).collect();
        if sequences.is_empty() {
            return None;
        }
        let automaton = NFA::builder()
            // The one that ends first, whichever begins first.
            .match_kind(MatchKind::Standard)
            // It skips to where a sequence may begin, which a single step cannot use.
            .prefilter(false)
            .build(&sequences);
        // It has a state for each byte of what `limits` bounds, far below the two billion it may
        // have, and an unanchored start as every one that is built so.
        let automaton = automaton.expect("an automaton of bounded sequences");
        let state = automaton
            .start_state(Anchored::No)
            .expect("an unanchored start");
        Some(Self { automaton, state })
    }

    /// Take in the stream's next byte; whether a sequence ends with it.
    pub fn step(&mut self, byte: u8) -> bool {
        self.state = self.automaton.next_state(Anchored::No, self.state, byte);
        self.automaton.is_match(self.state)
    }
}

/// Finds stop words of token ids in a growing answer.
#[derive(Clone, Debug)]
pub struct StopTokens(Option<Matcher>);

impl StopTokens {
    /// Looks for these words. As in the engines, one may begin in the prompt, while its last token
    /// never lies there.
    pub fn new(words: &[Vec<i32>], prompt: &[i32]) -> Self {
        let longest = words.iter().map(Vec::len).max().unwrap_or(0);
        let words = words
            .iter()
            .map(|word| word.iter().flat_map(|token| token.to_le_bytes()));
        let mut stop = Self(Matcher::new(words.map(Iterator::collect::<Vec<u8>>)));
        for token in &prompt[prompt.len().saturating_sub(longest)..] {
            stop.end_with(*token);
        }
        stop
    }

    /// Whether a word ends with the next token. All words have whole tokens, so what ends where a
    /// token does begins where one does.
    pub fn end_with(&mut self, token: i32) -> bool {
        let step = |matcher: &mut Matcher| token.to_le_bytes().map(|byte| matcher.step(byte))[3];
        self.0.as_mut().is_some_and(step)
    }
}
