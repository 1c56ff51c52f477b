//! Brings the rounds of many answers together, so that the engines work for all of them at once.
//!
//! An engine that batches in flight begins a step with what is there. Answers that come one by one
//! fall into parties that take turns at the target, and a round then costs two target steps rather
//! than one and a draft. So a verification waits for the answers that are on their way to one, as
//! long as their calls usually take, and all go to the engine as rows of one call; what comes back
//! together is drafted for together.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::engine::Role;
use crate::estimate::Mean;

/// Of a verification's usual time: how much later than that it is still waited for, and how long
/// answers of one call may lie apart and go on together.
const APART: f64 = 0.1;
/// Of a draft's usual time: how much later than that it is still waited for. Who goes without the
/// others makes them wait for a whole verification, so this may take longer than it saves.
const LATE: f64 = 0.5;

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
    /// When the first of its rows had an answer.
    answered: Option<Instant>,
}

/// Rows that wait, and calls under way.
pub struct Gather<R> {
    /// Rows of a call at most; 1 where the engines take one prompt a call.
    most: usize,
    draft: Waiting<R>,
    target: Waiting<R>,
    under: HashMap<u64, Under>,
    number: u64,
    drafting: Mean,
    verifying: Mean,
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
            drafting: Mean::default(),
            verifying: Mean::default(),
        }
    }

    /// The engines turned out to take one row a call.
    pub fn go_alone(&mut self) {
        self.most = 1;
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
        if under.answered.is_none() {
            under.answered = Some(now);
            let mean = match under.role {
                Role::Draft => &mut self.drafting,
                Role::Target => &mut self.verifying,
            };
            mean.add((now - under.begun).as_secs_f64());
        }
        under.left = under.left.saturating_sub(1);
        if under.left == 0 {
            self.under.remove(&number);
        }
    }

    /// Calls that are to be made now.
    pub fn ready(&mut self, now: Instant) -> Vec<Batch<R>> {
        let mut batches = Vec::new();
        for role in [Role::Draft, Role::Target] {
            let waiting = self.rows(role).len();
            // A call that is full cannot take those who are on their way.
            let early = waiting < self.most && self.due_of(role).is_some_and(|due| now < due);
            if waiting == 0 || early {
                continue;
            }
            let rows = std::mem::take(&mut self.waiting(role).rows);
            for rows in self.split(rows) {
                self.number += 1;
                let under = Under {
                    role,
                    begun: now,
                    left: rows.len(),
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

    /// When rows that wait now go at the latest.
    pub fn due(&self) -> Option<Instant> {
        [Role::Draft, Role::Target]
            .into_iter()
            .filter(|role| !self.rows(*role).is_empty())
            .filter_map(|role| self.due_of(role))
            .min()
    }

    /// When the last of those that are waited for should be there; None when nobody is.
    fn due_of(&self, role: Role) -> Option<Instant> {
        if self.most == 1 {
            return None;
        }
        let under = self.under.values().filter_map(|one| match role {
            Role::Draft => self.answers_end(one),
            Role::Target => self.verification_of(one),
        });
        let drafts_next = role == Role::Target && !self.draft.rows.is_empty();
        let next = drafts_next.then(|| self.draft.since + self.apart() + self.drafts_end());
        under.chain(next).max()
    }

    /// When all answers of a verification are there; None while there is none at all.
    fn answers_end(&self, under: &Under) -> Option<Instant> {
        let first = under.answered.filter(|_| under.role == Role::Target)?;
        Some(first + self.apart())
    }

    /// When what is under way should be ready for its next verification.
    fn verification_of(&self, under: &Under) -> Option<Instant> {
        match under.role {
            Role::Draft => Some(under.begun + self.drafts_end()),
            Role::Target => {
                let usual = (1.0 + APART) * self.verifying.value;
                let usual = under.begun + Duration::from_secs_f64(usual);
                Some(self.answers_end(under).unwrap_or(usual) + self.drafts_end())
            }
        }
    }

    fn apart(&self) -> Duration {
        Duration::from_secs_f64(APART * self.verifying.value)
    }

    /// How long a draft is waited for.
    fn drafts_end(&self) -> Duration {
        Duration::from_secs_f64((1.0 + LATE) * self.drafting.value)
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
