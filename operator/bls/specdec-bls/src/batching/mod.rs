//! Brings the calls of many sequences together into batches for the engines.
//!
//! An engine with in-flight batching begins a step with the requests that are there. Calls that
//! arrive one by one would fall into several batches that take turns at the target, and a round
//! would cost two target steps. So a verification waits for the other sequences that are about to
//! send one, as long as their calls usually take. All of them then go out as one call with a row
//! for each sequence.
//!
//! A sequence that is late for the others' draft call would delay their verification. It proposes
//! only as many tokens as fit until then. Where that is not enough, the others leave without it
//! once waiting longer would cost all of them more time than the late sequence loses.

pub mod merge;
mod waiting;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Instant;

use crate::draft_length::estimate::Mean;
use crate::engine::Role;

/// A row that can share a call with others.
pub trait Batchable {
    /// Whether both rows can go into one call.
    fn fits_with(&self, other: &Self) -> bool;

    /// Draft tokens to propose or to verify.
    fn draft_tokens(&self) -> usize;

    /// Whether the draft may propose fewer tokens.
    fn may_shorten(&self) -> bool;

    /// Let the draft propose only so many tokens.
    fn shorten(&mut self, draft_tokens: usize);
}

/// Rows that make one call.
#[derive(Debug)]
pub struct Batch<R> {
    pub number: u64,
    pub role: Role,
    pub rows: Vec<R>,
}

/// A batch whose call has been made.
struct InFlight {
    role: Role,
    started: Instant,
    /// Rows without a result.
    pending: usize,
    draft_tokens: usize,
    /// When the first of its rows had a result.
    first_result: Option<Instant>,
}

/// Collects rows, and decides when they go out in which batches.
pub struct Batcher<R> {
    /// Most rows of a call; 1 where the engines take one prompt a call.
    max_rows: usize,
    draft: Vec<R>,
    target: Vec<R>,
    in_flight: HashMap<u64, InFlight>,
    number: u64,
    /// Seconds of a draft token, and of a verification.
    draft_token_seconds: Mean,
    verify_seconds: Mean,
}

impl<R: Batchable> Batcher<R> {
    /// Calls have at most `max_rows` rows. With 1, every row goes out alone and at once.
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

    /// Add a row; [`Batcher::take_ready`] returns it when it may go out.
    pub fn submit(&mut self, role: Role, row: R) {
        self.waiting_mut(role).push(row);
    }

    /// A row of batch `number` has its result, and its sequence has submitted its next row.
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

    /// Batches whose calls are to be made now.
    pub fn take_ready(&mut self, now: Instant) -> Vec<Batch<R>> {
        let mut batches = Vec::new();
        for role in [Role::Draft, Role::Target] {
            let count = self.waiting(role).len();
            // A full batch has no room for the rows that are still to come.
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
        let in_flight = InFlight {
            role,
            started: now,
            pending: rows.len(),
            draft_tokens,
            first_result: None,
        };
        self.in_flight.insert(self.number, in_flight);
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
        // The second group misses the engine step that the first one begins.
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
