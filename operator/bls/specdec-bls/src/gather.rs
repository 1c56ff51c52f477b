//! Brings the rounds of many answers together, so that the engines work for all of them at once.
//!
//! An engine that batches in flight begins a step with what is there. Answers that come one by one
//! fall into parties that take turns at the target, and a round then costs two target steps rather
//! than one and a draft. So a verification waits for the answers that are on their way to one, as
//! long as their calls usually take, and all go to the engine as rows of one call; what comes back
//! together is drafted for together.
//!
//! Who comes late to the others' draft would hold them up. It proposes as many tokens as are ready
//! with theirs, and where that is not enough, they go when waiting longer would cost all answers
//! together more time than the late ones lose until the next round.

mod waiting;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Instant;

use crate::engine::Role;
use crate::estimate::Mean;

/// A row that can share a call with its like.
pub trait Companion {
    /// Whether both fit into one call.
    fn alike(&self, other: &Self) -> bool;

    /// Draft tokens that it is about.
    fn drafts(&self) -> usize;

    /// Whether a draft may propose fewer.
    fn shortens(&self) -> bool;

    /// Let the draft propose so many.
    fn shorten(&mut self, drafts: usize);
}

/// Rows of one call to be made.
#[derive(Debug)]
pub struct Batch<R> {
    pub number: u64,
    pub role: Role,
    pub rows: Vec<R>,
}

struct Under {
    role: Role,
    begun: Instant,
    left: usize,
    drafts: usize,
    /// When the first of its rows had an answer.
    answered: Option<Instant>,
}

/// Rows that wait, and calls under way.
pub struct Gather<R> {
    /// Rows of a call at most; 1 where the engines take one prompt a call.
    most: usize,
    draft: Vec<R>,
    target: Vec<R>,
    under: HashMap<u64, Under>,
    number: u64,
    /// Seconds of a draft token, and of a verification.
    drafting: Mean,
    verifying: Mean,
}

impl<R: Companion> Gather<R> {
    /// Calls have at most `most` rows: with 1 every row goes alone and at once.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            draft: Vec::new(),
            target: Vec::new(),
            under: HashMap::new(),
            number: 0,
            drafting: Mean::default(),
            verifying: Mean::default(),
        }
    }

    /// The engines turned out to take one row a call.
    pub fn go_alone(&mut self) {
        self.most = 1;
    }

    /// A row wants to go; `ready` says when it may.
    pub fn submit(&mut self, role: Role, row: R) {
        self.waiting(role).push(row);
    }

    /// A row of that call has its answer, and has gone on.
    pub fn answered(&mut self, number: u64, now: Instant) {
        let Some(under) = self.under.get_mut(&number) else {
            return;
        };
        let passed = (now - under.begun).as_secs_f64();
        if under.role == Role::Target && under.answered.is_none() {
            self.verifying.add(passed);
        }
        under.answered.get_or_insert(now);
        under.left = under.left.saturating_sub(1);
        if under.left == 0 {
            if under.role == Role::Draft {
                self.drafting.add(passed / under.drafts as f64);
            }
            self.under.remove(&number);
        }
    }

    /// Calls that are to be made now.
    pub fn ready(&mut self, now: Instant) -> Vec<Batch<R>> {
        let mut batches = Vec::new();
        for role in [Role::Draft, Role::Target] {
            let waiting = self.rows(role).len();
            // A call that is full cannot take those who are on their way.
            let early = waiting < self.most && self.due_of(role, now).is_some_and(|due| now < due);
            if waiting == 0 || early {
                continue;
            }
            let mut rows = std::mem::take(self.waiting(role));
            if role == Role::Draft {
                self.hurry(&mut rows, now);
            }
            for rows in self.split(rows) {
                self.number += 1;
                let under = Under {
                    role,
                    begun: now,
                    left: rows.len(),
                    drafts: rows.iter().map(R::drafts).max().unwrap_or(0).max(1),
                    answered: None,
                };
                self.under.insert(self.number, under);
                batches.push(Batch {
                    number: self.number,
                    role,
                    rows,
                });
            }
        }
        batches
    }

    fn split(&self, rows: Vec<R>) -> Vec<Vec<R>> {
        let mut groups: Vec<Vec<R>> = Vec::new();
        for row in rows {
            let fits = |group: &&mut Vec<R>| group.len() < self.most && group[0].alike(&row);
            match groups.iter_mut().find(fits) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        // Whoever comes second misses the step that the first one begins.
        groups.sort_by_key(|group| Reverse(group.len()));
        groups
    }

    fn rows(&self, role: Role) -> &[R] {
        match role {
            Role::Draft => &self.draft,
            Role::Target => &self.target,
        }
    }

    fn waiting(&mut self, role: Role) -> &mut Vec<R> {
        match role {
            Role::Draft => &mut self.draft,
            Role::Target => &mut self.target,
        }
    }
}
