//! A suffix automaton of a growing text of tokens. After each token, it finds the longest suffix
//! that occurred before, in amortized constant time (Blumer et al. 1985,
//! doi:10.1016/0304-3975(85)90157-4).
//!
//! A state stands for all strings that end at the same positions of the text. Its `link` is the
//! state of its longest suffix that also ends elsewhere. The link of the whole text is therefore
//! its longest suffix that occurs at least twice. For n tokens there are at most 2n states, and at
//! most n more transitions than states. Most states have one transition, which is stored in the
//! state. Together they take at most 60 bytes a token, less in text with few repetitions.

use std::collections::HashMap;

/// No state or branch. No text is that long: it would exceed the engines' 32 bits.
const NONE: u32 = u32::MAX;
const ROOT: u32 = 0;
/// A new token may end suffixes of the text that also occurred earlier. For this many of them, the
/// longest, the new position is recorded. Shorter ones are not of interest. In a text of one
/// repeated token, nearly every suffix occurred before, so recording all of them would take too
/// long.
const MOST_SUFFIXES: usize = 16;
/// Capacity grows by itself divided by this number, so that it exceeds the need by little.
const GROWTH: usize = 16;

#[derive(Clone, Copy, Debug)]
struct State {
    /// Tokens of the longest string of this state.
    length: u32,
    /// The state of the longest suffix that also ends elsewhere.
    link: u32,
    /// A position where the strings end, counted in tokens from the start. It is the latest
    /// one if the state was among the `MOST_SUFFIXES` longest suffixes when its strings last
    /// occurred, else an earlier one.
    end: u32,
    /// The first transition: this token leads to this state, `NONE` without any.
    token: i32,
    target: u32,
    /// The other transitions, a list; `NONE` without any.
    branches: u32,
}

#[derive(Clone, Copy, Debug)]
struct Branch {
    token: i32,
    target: u32,
    next: u32,
}

/// A string of the text that occurred before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Number of its tokens.
    pub length: usize,
    /// The position after its last token.
    pub end: usize,
    state: u32,
}

/// The automaton of the tokens that were pushed so far.
#[derive(Debug)]
pub struct Automaton {
    states: Vec<State>,
    branches: Vec<Branch>,
    /// Transitions of the root, which has one for each distinct token.
    first: HashMap<i32, u32>,
    last: u32,
    longest: Option<Occurrence>,
}

impl Default for Automaton {
    fn default() -> Self {
        let mut automaton = Self {
            states: Vec::new(),
            branches: Vec::new(),
            first: HashMap::new(),
            last: ROOT,
            longest: None,
        };
        automaton.add(State {
            length: 0,
            link: NONE,
            end: 0,
            token: 0,
            target: NONE,
            branches: NONE,
        });
        automaton
    }
}

impl Automaton {
    /// Append a token to the text.
    pub fn push(&mut self, token: i32) {
        let length = self.state(self.last).length + 1;
        let whole = self.add(State {
            length,
            link: ROOT,
            end: length,
            token: 0,
            target: NONE,
            branches: NONE,
        });
        let mut from = self.last;
        while from != NONE && self.target(from, token).is_none() {
            self.connect(from, token, whole);
            from = self.state(from).link;
        }
        if from != NONE {
            let next = self.target(from, token).unwrap_or(ROOT);
            let link = self.split(from, token, next);
            self.change(whole, |state| state.link = link);
        }
        self.last = whole;
        self.note_occurrence(length);
    }

    /// The longest suffix of the text that also occurs earlier, at its latest known occurrence.
    pub fn longest(&self) -> Option<Occurrence> {
        self.longest
    }

    /// The occurrence with one more token; None if that token never follows it in the text.
    pub fn step(&self, occurrence: Occurrence, token: i32) -> Option<Occurrence> {
        let state = self.target(occurrence.state, token)?;
        Some(Occurrence {
            length: occurrence.length + 1,
            end: self.state(state).end as usize,
            state,
        })
    }

    /// Whether the same token followed the string wherever it occurred.
    pub fn is_certain(&self, occurrence: Occurrence) -> bool {
        let state = self.state(occurrence.state);
        occurrence.state != ROOT && state.target != NONE && state.branches == NONE
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        // The standard map has eight buckets for each seven entries, with a byte of its own each.
        let bucket = size_of::<(i32, u32)>() + 1;
        self.states.capacity() * size_of::<State>()
            + self.branches.capacity() * size_of::<Branch>()
            + self.first.capacity() * bucket * 8 / 7
    }

    /// The state whose longest string is that of `from` with `token` after it. If this is the
    /// longest string of `next`, the state that `from` reaches by `token`, the result is `next`.
    /// Otherwise it is a new state, to which `next` then links.
    fn split(&mut self, from: u32, token: i32, next: u32) -> u32 {
        let length = self.state(from).length + 1;
        if self.state(next).length == length {
            return next;
        }
        let clone = self.add(State {
            length,
            ..self.state(next)
        });
        self.copy_branches(next, clone);
        self.change(next, |state| state.link = clone);
        let mut at = from;
        while at != NONE && self.target(at, token) == Some(next) {
            self.redirect(at, token, clone);
            at = self.state(at).link;
        }
        clone
    }

    /// Keep the longest repeated suffix of the text, and note for it and the next shorter ones that
    /// they occur here.
    fn note_occurrence(&mut self, end: u32) {
        let mut suffix = self.state(self.last).link;
        let state = self.state(suffix);
        self.longest = (suffix != ROOT).then_some(Occurrence {
            length: state.length as usize,
            end: state.end as usize,
            state: suffix,
        });
        for _ in 0..MOST_SUFFIXES {
            if suffix == ROOT {
                break;
            }
            self.change(suffix, |state| state.end = end);
            suffix = self.state(suffix).link;
        }
    }

    fn target(&self, state: u32, token: i32) -> Option<u32> {
        if state == ROOT {
            return self.first.get(&token).copied();
        }
        let from = self.state(state);
        if from.target == NONE {
            return None;
        }
        if from.token == token {
            return Some(from.target);
        }
        self.branch(from.branches, token)
            .and_then(|index| Some(self.branches.get(index)?.target))
    }

    /// Index of the branch with this token in a list.
    fn branch(&self, list: u32, token: i32) -> Option<usize> {
        let mut at = list;
        while let Some(branch) = self.branches.get(at as usize) {
            if branch.token == token {
                return Some(at as usize);
            }
            at = branch.next;
        }
        None
    }

    /// Add a transition that does not exist yet.
    fn connect(&mut self, from: u32, token: i32, target: u32) {
        if from == ROOT {
            self.first.insert(token, target);
            return;
        }
        let state = self.state(from);
        if state.target == NONE {
            self.change(from, |state| (state.token, state.target) = (token, target));
        } else {
            let branch = self.branches.len() as u32;
            reserve(&mut self.branches);
            self.branches.push(Branch {
                token,
                target,
                next: state.branches,
            });
            self.change(from, |state| state.branches = branch);
        }
    }

    /// Change the target of a transition that exists.
    fn redirect(&mut self, from: u32, token: i32, target: u32) {
        let state = self.state(from);
        if from == ROOT {
            self.first.insert(token, target);
        } else if state.token == token {
            self.change(from, |state| state.target = target);
        } else if let Some(index) = self.branch(state.branches, token)
            && let Some(branch) = self.branches.get_mut(index)
        {
            branch.target = target;
        }
    }

    /// Give the state `to` branches of its own, equal to those of `from`.
    fn copy_branches(&mut self, from: u32, to: u32) {
        let mut at = self.state(from).branches;
        self.change(to, |state| state.branches = NONE);
        while let Some(&branch) = self.branches.get(at as usize) {
            self.connect(to, branch.token, branch.target);
            at = branch.next;
        }
    }

    fn add(&mut self, state: State) -> u32 {
        reserve(&mut self.states);
        self.states.push(state);
        self.states.len() as u32 - 1
    }

    /// A state; the root if no state has this index.
    fn state(&self, index: u32) -> State {
        let state = self.states.get(index as usize).or(self.states.first());
        state.copied().unwrap_or(State {
            length: 0,
            link: NONE,
            end: 0,
            token: 0,
            target: NONE,
            branches: NONE,
        })
    }

    fn change(&mut self, index: u32, change: impl FnOnce(&mut State)) {
        if let Some(state) = self.states.get_mut(index as usize) {
            change(state);
        }
    }
}

/// Make room for one more element.
fn reserve<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / GROWTH).max(GROWTH));
    }
}
