//! Collects the calls of many sequences into batches for the engines.
//!
//! An engine with in-flight batching starts a step with the requests that have arrived. If the
//! calls of sequences arrived one by one, they would form several batches that take turns at the
//! target, and a round would cost two target steps. So a verification waits for the sequences that
//! are about to send one, for as long as their calls usually take. All of them are then sent as one
//! call with a row for each sequence.
//!
//! A sequence whose draft call starts later than the others' would delay their verification. Its
//! proposal is shortened, so that it ends together with theirs. If it is still too late, the batch
//! is sent without it, as soon as waiting would cost all sequences together more time than the late
//! one loses.

pub mod merge;
mod waiting;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Instant;

use crate::draft_length::estimate::Mean;
use crate::engine::Role;

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

/// Rows that are sent as one call.
#[derive(Debug)]
pub struct Batch<R> {
    /// Identifies the batch in [`Batcher::row_completed`].
    pub number: u64,
    pub role: Role,
    pub rows: Vec<R>,
}

/// A batch in flight: its call was sent, and not all of its rows have results.
struct SentBatch {
    role: Role,
    started: Instant,
    /// Rows without a result.
    pending: usize,
    /// Largest number of draft tokens of a row, at least 1.
    draft_tokens: usize,
    /// When the first of its rows got its result.
    first_result: Option<Instant>,
}

/// Collects rows, and decides when they are sent in which batches.
pub struct Batcher<R> {
    /// Most rows of a call; 1 if the engines take only one prompt a call.
    max_rows: usize,
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
    /// A batcher for calls of at most `max_rows` rows. With 1, every row is sent alone and at once.
    pub fn new(max_rows: usize) -> Self {
        Self {
            max_rows,
            draft: Vec::new(),
            target: Vec::new(),
            in_flight: HashMap::new(),
            number: 0,
            draft_token_seconds: Mean::default(),
            verify_seconds: Mean::default(),
        }
    }

    /// Send every row alone from now on: an engine takes no batches.
    pub fn stop_batching(&mut self) {
        self.max_rows = 1;
    }

    /// Add a row. [`Batcher::take_ready`] returns it when it is time to send it.
    pub fn submit(&mut self, role: Role, row: R) {
        self.waiting_mut(role).push(row);
    }

    /// Report that a row of batch `number` has its result.
    ///
    /// The sequence submits its next row first. Otherwise a batch could be sent without it.
    pub fn row_completed(&mut self, number: u64, now: Instant) {
        let Some(batch) = self.in_flight.get_mut(&number) else {
            return;
        };
        let seconds = (now - batch.started).as_secs_f64();
        if batch.role == Role::Target && batch.first_result.is_none() {
            self.verify_seconds.add(seconds);
        }
        batch.first_result.get_or_insert(now);
        batch.pending = batch.pending.saturating_sub(1);
        if batch.pending == 0 {
            if batch.role == Role::Draft {
                self.draft_token_seconds
                    .add(seconds / batch.draft_tokens as f64);
            }
            self.in_flight.remove(&number);
        }
    }

    /// The batches to send now.
    pub fn take_ready(&mut self, now: Instant) -> Vec<Batch<R>> {
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
            for rows in self.split(rows) {
                batches.push(self.launch(role, rows, now));
            }
        }
        batches
    }

    fn launch(&mut self, role: Role, rows: Vec<R>, now: Instant) -> Batch<R> {
        self.number += 1;
        let draft_tokens = rows.iter().map(R::draft_tokens).max().unwrap_or(0).max(1);
        let sent = SentBatch {
            role,
            started: now,
            pending: rows.len(),
            draft_tokens,
            first_result: None,
        };
        self.in_flight.insert(self.number, sent);
        Batch {
            number: self.number,
            role,
            rows,
        }
    }

    /// Groups of rows that fit into one call each.
    fn split(&self, rows: Vec<R>) -> Vec<Vec<R>> {
        let mut groups: Vec<Vec<R>> = Vec::new();
        for row in rows {
            let fits = |group: &&mut Vec<R>| {
                group.len() < self.max_rows
                    && group.first().is_some_and(|first| first.fits_with(&row))
            };
            match groups.iter_mut().find(fits) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        // The largest group first: the others miss the engine step that the first call starts.
        groups.sort_by_key(|group| Reverse(group.len()));
        groups
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
