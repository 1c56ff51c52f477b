//! How long rows wait for others, by what the engines' calls have taken so far.

use std::time::{Duration, Instant};

use super::{Companion, Gather, Under};
use crate::engine::Role;

/// Of a verification's usual time: how much later than that it is still waited for, and how long
/// answers of one call may lie apart and go on together.
const APART: f64 = 0.1;
/// Of a draft's usual time: how much later than that it is still waited for.
const LATE: f64 = 0.5;

/// Rows that are on their way to a verification.
struct Coming {
    expected: Instant,
    latest: Instant,
    rows: usize,
}

impl<R: Companion> Gather<R> {
    /// When rows that wait now go at the latest.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        [Role::Draft, Role::Target]
            .into_iter()
            .filter(|role| !self.rows(*role).is_empty())
            .filter_map(|role| self.due_of(role, now))
            .min()
    }

    /// When the last of those that are waited for should be there; None when nobody is.
    pub(super) fn due_of(&self, role: Role, now: Instant) -> Option<Instant> {
        if self.most == 1 {
            return None;
        }
        if role == Role::Draft {
            return self
                .verifications()
                .filter_map(|one| self.answers_end(one))
                .max();
        }
        let together = self
            .verifications()
            .map(|one| self.verification_of(one))
            .max();
        together.or_else(|| self.worth_waiting(now))
    }

    fn verifications(&self) -> impl Iterator<Item = &Under> {
        self.under.values().filter(|one| one.role == Role::Target)
    }

    /// When all answers of a verification are there; None while there is none at all.
    fn answers_end(&self, under: &Under) -> Option<Instant> {
        Some(under.answered? + self.apart())
    }

    /// When rows that are being verified should be ready for their next verification.
    fn verification_of(&self, under: &Under) -> Instant {
        let usual = under.begun + seconds((1.0 + APART) * self.verifying.value);
        let drafts = under.drafts as f64 * (1.0 + LATE);
        self.answers_end(under).unwrap_or(usual) + seconds(drafts * self.drafting.value)
    }

    /// How long to wait for drafts under way; None where going without them costs less.
    ///
    /// Waiting delays all answers, and who is left behind loses a round. Both are counted in
    /// seconds of one answer.
    fn worth_waiting(&self, now: Instant) -> Option<Instant> {
        let mut coming: Vec<Coming> = self.coming(now).collect();
        coming.sort_by_key(|one| one.expected);
        let mut behind: usize = coming.iter().map(|one| one.rows).sum();
        let answers = (self.target.len() + behind) as f64;
        let round = self.round(self.under.values().map(|one| one.drafts).max().unwrap_or(0));
        let (mut least, mut latest, mut due) = (round * behind as f64, now, None);
        for one in coming {
            behind -= one.rows;
            latest = latest.max(one.latest);
            let wait = (one.expected - now).as_secs_f64();
            let cost = answers * wait + round * behind as f64;
            if cost < least {
                (least, due) = (cost, Some(latest));
            }
        }
        due
    }

    /// Drafts under way, but for those that have taken too long.
    fn coming(&self, now: Instant) -> impl Iterator<Item = Coming> {
        let drafts = self.under.values().filter(|one| one.role == Role::Draft);
        drafts.filter_map(move |one| {
            let usual = one.drafts as f64;
            // A call that comes while others are worked at begins with their next token.
            let most = usual + (LATE * usual).max(1.0);
            let latest = one.begun + seconds(most * self.drafting.value);
            let expected = one.begun + seconds(usual * self.drafting.value);
            (now < latest).then(|| Coming {
                expected: expected.max(now),
                latest,
                rows: one.left,
            })
        })
    }

    /// Let drafts that begin now end with those of the others, where it saves more than it costs:
    /// a token less is about that part of a round.
    pub(super) fn hurry(&self, rows: &mut [R], now: Instant) {
        let party: Vec<Coming> = self.coming(now).collect();
        let others = self.target.len() + party.iter().map(|one| one.rows).sum::<usize>();
        let token = self.drafting.value;
        if self.most == 1 || others == 0 || token == 0.0 || self.verifications().next().is_some() {
            return;
        }
        let end = party.iter().map(|one| one.expected).max().unwrap_or(now);
        let fitting = ((end - now).as_secs_f64() / token).round().max(1.0) as usize;
        let count = rows.len() as f64;
        for row in rows {
            let drafts = row.drafts();
            let saved = others as f64 * token;
            let lost = count * self.round(drafts) / (drafts + 1) as f64;
            if row.shortens() && fitting < drafts && saved > lost {
                row.shorten(fitting);
            }
        }
    }

    /// Seconds of a round with so many draft tokens.
    fn round(&self, drafts: usize) -> f64 {
        self.verifying.value + drafts as f64 * self.drafting.value
    }

    fn apart(&self) -> Duration {
        seconds(APART * self.verifying.value)
    }
}

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}
