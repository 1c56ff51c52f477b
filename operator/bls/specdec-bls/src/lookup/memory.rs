//! A bounded memory of finished texts, across the requests of one server, separate for each scope.
//!
//! SuffixDecoding (Oliaro et al. 2024, arXiv:2411.04975) keeps a global suffix tree of earlier
//! outputs, and REST (He et al. 2023, arXiv:2311.08252) a suffix array of a fixed corpus. Neither
//! can forget one text. This memory has the hash chains of deflate in segments that are evicted as
//! a whole, and no search crosses from one scope to another. It compares a few of the latest
//! occurrences, so it may miss a longer match in an old text.
//!
//! All scopes share the bytes. If a new segment has no room, the oldest segment of one scope
//! is evicted: of the scope that would be the largest if the new segment existed already. So a
//! scope loses nothing to a scope that is larger than itself.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use super::segment::{KEY, LONGEST, Segment};
use super::{CERTAIN, Candidate, MEMORY, size_class};
use crate::lock::locked;

/// Most bytes of a scope's name.
pub const MAX_SCOPE_BYTES: usize = 128;
/// Tokens of the smallest segment.
const LEAST_TOKENS: usize = 1024;
/// Most segments of the smallest size that fit into the memory, and so most scopes.
const MOST_SCOPES: usize = 4096;
/// A largest segment takes the memory divided by this number.
const LEAST_SEGMENTS: usize = 8;
/// The next segment of a scope has the room of the whole scope, in tokens, divided by this number.
const GROWTH: usize = 4;
/// Most positions that one search compares, apart from the first one in each segment.
const MOST_POSITIONS: usize = 32;
/// Most tokens that are learned while the lock is held. A search waits for no more than that.
const PIECE: usize = 256;
/// Bytes of a scope without its segments: its name, the first four places of its deque, and the
/// overhead of the allocations.
const SCOPE_BYTES: usize = MAX_SCOPE_BYTES + 4 * size_of::<Segment>() + 64;

/// The texts of all scopes.
#[derive(Debug)]
pub struct Memory {
    /// One text at a time is learned.
    learning: Mutex<()>,
    scopes: Mutex<Scopes>,
}

#[derive(Debug)]
struct Scopes {
    by_name: HashMap<Box<str>, Scope>,
    /// Bytes of the table of names and of all scopes.
    bytes: usize,
    limit: usize,
    /// Tokens of the smallest and of the largest segment.
    least: usize,
    most: usize,
    /// Pieces of texts learned and searches made so far: the clock of `Scope::last_use`.
    uses: u64,
}

#[derive(Debug, Default)]
struct Scope {
    /// The oldest first.
    segments: VecDeque<Segment>,
    bytes: usize,
    last_use: u64,
}

impl Memory {
    /// A memory of at most `limit` bytes, including its index and its table of names.
    pub fn new(limit: usize) -> Self {
        let tokens = Segment::tokens_in(limit);
        let least = LEAST_TOKENS.max(tokens / MOST_SCOPES);
        let most = (tokens / LEAST_SEGMENTS).max(least);
        let scopes = limit / Segment::bytes_of(least) + 1;
        let by_name = HashMap::with_capacity(scopes);
        // The standard map has a power of two of buckets, at most seven eighths of them in use.
        let buckets = (scopes * 8).div_ceil(7).next_power_of_two();
        let bucket = size_of::<(Box<str>, Scope)>() + 1;
        Self {
            learning: Mutex::default(),
            scopes: Mutex::new(Scopes {
                by_name,
                bytes: buckets * bucket + size_of::<Self>(),
                limit,
                least,
                most,
                uses: 0,
            }),
        }
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        locked(&self.scopes).bytes
    }

    /// Learn a text of a scope: a prompt and its answer.
    pub fn learn(&self, scope: &str, text: &[i32]) {
        if scope.len() > MAX_SCOPE_BYTES || text.len() <= KEY {
            return;
        }
        let _learning = locked(&self.learning);
        for piece in text.chunks(PIECE) {
            locked(&self.scopes).append(scope, piece);
        }
        let mut scopes = locked(&self.scopes);
        let newest = scopes.by_name.get_mut(scope);
        if let Some(segment) = newest.and_then(|scope| scope.segments.back_mut()) {
            segment.end_text();
        }
    }

    /// At most `most` tokens that followed the last tokens of `text` in this scope. None without
    /// a match of at least `least` tokens.
    pub fn candidate(
        &self,
        scope: &str,
        text: &[i32],
        least: usize,
        most: usize,
    ) -> Option<Candidate> {
        if least > LONGEST || most == 0 {
            return None;
        }
        let mut scopes = locked(&self.scopes);
        scopes.uses += 1;
        let now = scopes.uses;
        let scope = scopes.by_name.get_mut(scope)?;
        scope.last_use = now;
        scope.candidate(text, least.max(KEY), most)
    }
}

impl Scopes {
    fn append(&mut self, name: &str, mut text: &[i32]) {
        self.uses += 1;
        while !text.is_empty() {
            let newest = self.by_name.get_mut(name);
            let newest = newest.and_then(|scope| scope.segments.back_mut());
            let learned = newest.map_or(0, |segment| segment.append(text));
            text = text.get(learned..).unwrap_or_default();
            if learned == 0 && !self.grow(name) {
                return;
            }
        }
    }

    /// Give a scope one more segment, if necessary in place of older ones; false if there is no
    /// room even then.
    fn grow(&mut self, name: &str) -> bool {
        let room = |segments: &VecDeque<Segment>| segments.iter().map(Segment::capacity).sum();
        let tokens: usize = self.by_name.get(name).map_or(0, |it| room(&it.segments));
        let tokens = (tokens / GROWTH).clamp(self.least, self.most);
        let bytes = Segment::bytes_of(tokens);
        while self.bytes + bytes + SCOPE_BYTES > self.limit {
            if !self.evict(name, bytes) {
                return false;
            }
        }
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.into(), Scope::default());
            self.bytes += SCOPE_BYTES;
        }
        if let Some(scope) = self.by_name.get_mut(name) {
            scope.segments.push_back(Segment::new(tokens));
            scope.bytes += bytes;
            scope.last_use = self.uses;
        }
        self.bytes += bytes;
        true
    }

    /// Drop the oldest segment of the largest scope. Sizes are compared as if the scope `name`
    /// already had its new segment of `bytes` bytes. Among equally large scopes, the one whose last
    /// use is the longest ago loses it. False if there is no scope.
    fn evict(&mut self, name: &str, bytes: usize) -> bool {
        let sizes = self.by_name.iter().map(|(other, scope)| {
            let added = if other.as_ref() == name { bytes } else { 0 };
            ((scope.bytes + added, Reverse(scope.last_use)), other)
        });
        let Some((_, name)) = sizes.max_by_key(|(size, _)| *size) else {
            return false;
        };
        let name = name.clone();
        if let Some(scope) = self.by_name.get_mut(&name) {
            let bytes = scope.segments.pop_front().map_or(0, |it| it.bytes());
            scope.bytes -= bytes;
            self.bytes -= bytes;
            if scope.segments.is_empty() {
                self.by_name.remove(&name);
                self.bytes -= SCOPE_BYTES;
            }
        }
        true
    }
}

impl Scope {
    fn candidate(&self, text: &[i32], least: usize, most: usize) -> Option<Candidate> {
        let (matched, occurrences) = self.longest(text, least);
        let (latest, others) = occurrences.split_first()?;
        let tokens = latest.0.following(latest.1, most).to_vec();
        let others: Vec<&[i32]> = others
            .iter()
            .map(|(segment, position)| segment.following(*position, most))
            .collect();
        let classes = (0..tokens.len()).map(|index| {
            let agrees = |other: &&[i32]| tokens.get(..=index) == other.get(..=index);
            let certain = if others.iter().all(agrees) {
                CERTAIN
            } else {
                0
            };
            MEMORY + certain + size_class(matched + index)
        });
        Some(Candidate {
            classes: classes.collect(),
            tokens,
            matched,
        })
    }

    /// The longest match of at least `least` tokens, and where it occurs, the latest first.
    fn longest(&self, text: &[i32], least: usize) -> (usize, Vec<(&Segment, usize)>) {
        let mut longest = (least, Vec::new());
        let mut compared = 0;
        for segment in self.segments.iter().rev() {
            for (index, position) in segment.positions(text).enumerate() {
                if index > 0 {
                    compared += 1;
                }
                if compared > MOST_POSITIONS {
                    break;
                }
                let matched = segment.matched(position, text);
                if matched > longest.0 {
                    longest = (matched, Vec::new());
                }
                if matched == longest.0 && !segment.following(position, 1).is_empty() {
                    longest.1.push((segment, position));
                }
            }
        }
        longest
    }
}
