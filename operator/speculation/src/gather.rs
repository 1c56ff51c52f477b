//! Brings the rounds of many answers together, so that the engines work for all of them at once.
//!
//! An engine that batches in flight begins a step with what is there. Answers that come one by one
//! fall into parties that take turns at the target, and a round then costs two target steps rather
//! than one and a draft. So a verification waits for those that are drafting, no longer than a
//! draft takes, and all go to the engine as rows of one call; what comes back together is drafted
//! for together.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::engine::Role;

/// Share of the old mean that a new observation leaves.
const KEPT: f64 = 0.9;
/// Of a verification's time: how long its answers may lie apart and still go on together.
const APART: f64 = 0.1;

/// A row that can share a call with its like.
pub trait Alike {
    /// Whether both fit into one call.
    fn alike(&self, other: &Self) -> bool;
}

/// Rows of one call to be made.
#[derive(Debug)]
pub struct Batch<R> {
    pub number: u64,
    pub role: Role,
    pub rows: Vec<R>,
}

struct Waiting<R> {
    rows: Vec<R>,
    since: Instant,
}

struct Under {
    role: Role,
    begun: Instant,
    left: usize,
    answering: bool,
    /// Waited for in vain.
    late: bool,
}

/// Rows that wait, and calls under way.
pub struct Gather<R> {
    /// Rows of a call at most; 1 where the engines take one prompt a call.
    most: usize,
    draft: Waiting<R>,
    target: Waiting<R>,
    under: HashMap<u64, Under>,
    number: u64,
    draft_seconds: f64,
    target_seconds: f64,
}

impl<R: Alike> Gather<R> {
    /// Calls have at most `most` rows: with 1 every row goes alone and at once.
    pub fn new(most: usize, now: Instant) -> Self {
        let empty = || Waiting {
            rows: Vec::new(),
            since: now,
        };
        Self {
            most,
            draft: empty(),
            target: empty(),
            under: HashMap::new(),
            number: 0,
            draft_seconds: 0.0,
            target_seconds: 0.0,
        }
    }

    /// A row wants to go; `ready` says when it may.
    pub fn submit(&mut self, role: Role, row: R, now: Instant) {
        let waiting = self.waiting(role);
        if waiting.rows.is_empty() {
            waiting.since = now;
        }
        waiting.rows.push(row);
    }

    /// A row of that call has its answer, and has gone on.
    pub fn answered(&mut self, number: u64, now: Instant) {
        let Some(under) = self.under.get_mut(&number) else {
            return;
        };
        let first = !std::mem::replace(&mut under.answering, true);
        under.left = under.left.saturating_sub(1);
        let (role, left, begun) = (under.role, under.left, under.begun);
        if first {
            let seconds = (now - begun).as_secs_f64();
            let mean = match role {
                Role::Draft => &mut self.draft_seconds,
                Role::Target => &mut self.target_seconds,
            };
            *mean = if *mean == 0.0 {
                seconds
            } else {
                KEPT * *mean + (1.0 - KEPT) * seconds
            };
        }
        if left == 0 {
            self.under.remove(&number);
        }
    }

    /// Calls that are to be made now.
    pub fn ready(&mut self, now: Instant) -> Vec<Batch<R>> {
        let mut batches = Vec::new();
        for role in [Role::Draft, Role::Target] {
            if self.waiting(role).rows.is_empty() {
                continue;
            }
            let expected = self.expected(role);
            if expected > 0 {
                if now < self.due_of(role) {
                    continue;
                }
                self.forget(role);
            }
            let rows = std::mem::take(&mut self.waiting(role).rows);
            for rows in self.split(rows) {
                self.number += 1;
                self.under.insert(
                    self.number,
                    Under {
                        role,
                        begun: now,
                        left: rows.len(),
                        answering: false,
                        late: self.most == 1,
                    },
                );
                batches.push(Batch {
                    number: self.number,
                    role,
                    rows,
                });
            }
        }
        batches
    }

    /// When rows that wait now go at the latest.
    pub fn due(&self) -> Option<Instant> {
        [Role::Draft, Role::Target]
            .into_iter()
            .filter(|role| !self.rows(*role).is_empty())
            .map(|role| self.due_of(role))
            .min()
    }

    fn due_of(&self, role: Role) -> Instant {
        let (since, patience) = match role {
            Role::Target => (self.target.since, self.draft_seconds),
            Role::Draft => (self.draft.since, APART * self.target_seconds),
        };
        since + Duration::from_secs_f64(patience)
    }

    /// Rows that are likely to join those that wait for that engine.
    fn expected(&self, role: Role) -> usize {
        self.under
            .values()
            .filter(|one| one.comes_to(role))
            .map(|one| one.left)
            .sum()
    }

    /// Nobody waits for them any more.
    fn forget(&mut self, role: Role) {
        for one in self.under.values_mut().filter(|one| one.comes_to(role)) {
            one.late = true;
        }
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
        groups
    }

    fn rows(&self, role: Role) -> &[R] {
        match role {
            Role::Draft => &self.draft.rows,
            Role::Target => &self.target.rows,
        }
    }

    fn waiting(&mut self, role: Role) -> &mut Waiting<R> {
        match role {
            Role::Draft => &mut self.draft,
            Role::Target => &mut self.target,
        }
    }
}

impl Under {
    /// Whether its rows are expected where that engine's rows wait: drafts at the target, and what
    /// the target has begun to answer at the draft.
    fn comes_to(&self, role: Role) -> bool {
        let there = match role {
            Role::Target => self.role == Role::Draft,
            Role::Draft => self.role == Role::Target && self.answering,
        };
        there && !self.late
    }
}
