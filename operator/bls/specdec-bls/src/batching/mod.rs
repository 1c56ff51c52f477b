//! Collects the calls of many sequences into batches for the engines.
//!
//! An engine with in-flight batching starts a step with the requests that have arrived. If the
//! calls of sequences arrived one by one, they would form several batches that take turns at the
//! target, and a round would cost two target steps. So a verification waits for other sequences
//! that will soon be ready for theirs, about as long as their draft calls usually take. All of
//! them are then sent at the same time: in one call with a row for each sequence, or in several
//! calls with fewer rows.
//!
//! Other engines run each call at its own speed, and there waiting only costs time. `waits`
//! compares both ways by measurement, and the faster one is used.
//!
//! A sequence whose draft call starts later than the others' would delay their verification. If the
//! request is greedy, the batcher shortens its proposal, so that all draft calls end together. It
//! does so only if this saves more time than it costs. A sequence that is still late may miss the
//! batch: the batcher does not wait for it if that would cost all sequences together more time than
//! the late one loses.

pub mod merge;
mod waiting;
pub mod waits;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Instant;

use crate::draft_length::estimate::Mean;
use crate::engine::Role;
use waits::{Synchronization, Waits};

/// A sequence's call, which can become a row of a batch.
pub trait Batchable {
    /// Whether one call can contain both rows.
    fn fits_with(&self, other: &Self) -> bool;

    /// Draft tokens to propose or to verify.
    fn draft_tokens(&self) -> usize;

    /// Whether the draft may propose fewer tokens.
    fn may_shorten(&self) -> bool;

    /// Let the draft propose only this many tokens.
    fn shorten(&mut self, draft_tokens: usize);
}

/// Rows that are sent at the same time.
#[derive(Debug)]
pub struct Batch<R> {
    /// Identifies the batch in [`Batcher::row_completed`].
    pub number: u64,
    pub role: Role,
    /// The rows of each call.
    pub calls: Vec<Vec<R>>,
}

/// A verification that has its first result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verified {
    /// Draft tokens of all its rows, with padding.
    pub draft_tokens: usize,
    pub seconds: f64,
    /// Rows waited for each other when it was sent.
    pub synchronized: bool,
}

/// A batch in flight: its calls were sent, and not all of its rows have results.
struct SentBatch {
    role: Role,
    started: Instant,
    /// Rows waited for each other when it was sent. Only such batches count for usual durations.
    synchronized: bool,
    /// Rows without a result.
    pending: usize,
    /// Largest number of draft tokens of a row, at least 1.
    draft_tokens: usize,
    /// Draft tokens of all rows.
    all_draft_tokens: usize,
    /// When the first of its rows got its result.
    first_result: Option<Instant>,
}

/// Collects rows, and decides when they are sent in which batches.
pub struct Batcher<R> {
    /// Most rows of a batch: those that one step of an engine takes.
    max_rows: usize,
    /// Most rows of a call; 1 if the engines take only one prompt a call.
    rows_per_call: usize,
    waits: Waits,
    /// Rows that wait for a draft call, and those that wait for a call of the target.
    draft: Vec<R>,
    target: Vec<R>,
    in_flight: HashMap<u64, SentBatch>,
    /// Number of the last batch.
    number: u64,
    /// Usual seconds of a draft token, and of a verification.
    draft_token_seconds: Mean,
    verify_seconds: Mean,
}

impl<R: Batchable> Batcher<R> {
    /// A batcher for engines whose steps take at most `max_rows` rows. With 1, no row waits.
    pub fn new(max_rows: usize, rows_per_call: usize, synchronization: Synchronization) -> Self {
        Self {
            max_rows,
            rows_per_call,
            waits: Waits::new(synchronization),
            draft: Vec::new(),
            target: Vec::new(),
            in_flight: HashMap::new(),
            number: 0,
            draft_token_seconds: Mean::default(),
            verify_seconds: Mean::default(),
        }
    }

    /// Send every row as a call of its own from now on: an engine takes one prompt a call.
    pub fn send_single_rows(&mut self) {
        self.rows_per_call = 1;
    }

    /// Add a row. [`Batcher::take_ready`] returns it when it is time to send it.
    pub fn submit(&mut self, role: Role, row: R) {
        self.waiting_mut(role).push(row);
    }

    /// Report that a row of batch `number` has its result. Returns the verification of which it is
    /// the first result, if any.
    ///
    /// The sequence submits its next row first. Otherwise a batch could be sent without it.
    pub fn row_completed(&mut self, number: u64, now: Instant) -> Option<Verified> {
        self.waits.elapse(now);
        let batch = self.in_flight.get_mut(&number)?;
        let seconds = (now - batch.started).as_secs_f64();
        let mut verified = None;
        if batch.role == Role::Target {
            self.waits.round_completed();
            if batch.first_result.is_none() {
                verified = Some(Verified {
                    draft_tokens: batch.all_draft_tokens,
                    seconds,
                    synchronized: batch.synchronized,
                });
            }
        }
        if verified.is_some_and(|verified| verified.synchronized) {
            self.verify_seconds.add(seconds);
        }
        batch.first_result.get_or_insert(now);
        batch.pending = batch.pending.saturating_sub(1);
        if batch.pending == 0 {
            if batch.role == Role::Draft && batch.synchronized {
                self.draft_token_seconds
                    .add(seconds / batch.draft_tokens as f64);
            }
            self.in_flight.remove(&number);
        }
        verified
    }

    /// The batches to send now.
    pub fn take_ready(&mut self, now: Instant) -> Vec<Batch<R>> {
        self.waits.elapse(now);
        let mut batches = Vec::new();
        for role in [Role::Draft, Role::Target] {
            let count = self.waiting(role).len();
            // A full batch has no room for rows that arrive later, so it does not wait for them.
            let waits =
                count < self.max_rows && self.due_for(role, now).is_some_and(|due| now < due);
            if count == 0 || waits {
                continue;
            }
            let mut rows = std::mem::take(self.waiting_mut(role));
            if role == Role::Draft {
                self.shorten_late_drafts(&mut rows, now);
            }
            for rows in self.batches(role, rows) {
                batches.push(self.launch(role, rows, now));
            }
        }
        let in_flight = self.in_flight.values().map(|batch| batch.pending);
        let rows = in_flight.sum::<usize>() + self.draft.len() + self.target.len();
        self.waits.set_rows(rows);
        batches
    }

    fn launch(&mut self, role: Role, rows: Vec<R>, now: Instant) -> Batch<R> {
        self.number += 1;
        let draft_tokens = rows.iter().map(R::draft_tokens);
        let all_draft_tokens = draft_tokens.clone().sum();
        let sent = SentBatch {
            role,
            started: now,
            synchronized: self.synchronizes(),
            pending: rows.len(),
            draft_tokens: draft_tokens.max().unwrap_or(0).max(1),
            all_draft_tokens,
            first_result: None,
        };
        self.in_flight.insert(self.number, sent);
        Batch {
            number: self.number,
            role,
            calls: self.calls(rows),
        }
    }

    /// Divide rows into calls of at most `rows_per_call` rows that fit together. Calls that fit
    /// together are adjacent, so that Triton's own batcher can combine them.
    fn calls(&self, rows: Vec<R>) -> Vec<Vec<R>> {
        let fits = |kind: &[R], row: &R| kind.first().is_some_and(|first| first.fits_with(row));
        let mut calls = Vec::new();
        for kind in groups(rows, usize::MAX, fits) {
            let mut rows = kind.into_iter().peekable();
            while rows.peek().is_some() {
                calls.push(rows.by_ref().take(self.rows_per_call).collect());
            }
        }
        calls
    }

    /// Divide rows into batches of at most `max_rows` rows. The rows of a batch start in the same
    /// step and end together, so draft calls of different lengths go into different batches.
    fn batches(&self, role: Role, rows: Vec<R>) -> Vec<Vec<R>> {
        groups(rows, self.max_rows, |batch, row| {
            let length = batch.first().map(R::draft_tokens);
            role == Role::Target || length == Some(row.draft_tokens())
        })
    }

    /// Whether rows now wait for each other, so that one engine step serves many sequences.
    fn synchronizes(&self) -> bool {
        self.max_rows > 1 && self.waits.rows_wait()
    }

    fn waiting(&self, role: Role) -> &[R] {
        match role {
            Role::Draft => &self.draft,
            Role::Target => &self.target,
        }
    }

    fn waiting_mut(&mut self, role: Role) -> &mut Vec<R> {
        match role {
            Role::Draft => &mut self.draft,
            Role::Target => &mut self.target,
        }
    }
}

/// Groups of at most `most` rows that belong together, the largest first: the others may miss the
/// engine step that the first group starts.
fn groups<R>(rows: Vec<R>, most: usize, belongs: impl Fn(&[R], &R) -> bool) -> Vec<Vec<R>> {
    let mut groups: Vec<Vec<R>> = Vec::new();
    for row in rows {
        let has_room = |group: &&mut Vec<R>| group.len() < most && belongs(group, &row);
        match groups.iter_mut().find(has_room) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups.sort_by_key(|group| Reverse(group.len()));
    groups
}
