//! How long rows wait for others, estimated from how long the engines' calls have taken.

use std::time::{Duration, Instant};

use super::{Batchable, Batcher, InFlight};
use crate::engine::Role;

/// Share of a verification's usual time that it may take longer and still be waited for. Results
/// of one call that arrive within the same time also continue together.
const VERIFY_TOLERANCE: f64 = 0.1;
/// Share of a draft call's usual time that it may take longer and still be waited for.
const DRAFT_TOLERANCE: f64 = 0.5;

/// A draft batch in flight, whose rows will need a verification.
struct Arrival {
    expected: Instant,
    latest: Instant,
    rows: usize,
}

impl<R: Batchable> Batcher<R> {
    /// When rows that wait now go out at the latest.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        [Role::Draft, Role::Target]
            .into_iter()
            .filter(|role| !self.waiting(*role).is_empty())
            .filter_map(|role| self.due_for(role, now))
            .min()
    }

    /// When the last rows that are worth waiting for should have arrived; None without any.
    pub(super) fn due_for(&self, role: Role, now: Instant) -> Option<Instant> {
        if self.max_rows == 1 {
            return None;
        }
        if role == Role::Draft {
            let ends = self.verifications();
            return ends.filter_map(|batch| self.results_end(batch)).max();
        }
        let next = self.verifications();
        let next = next.map(|batch| self.next_verification(batch)).max();
        next.or_else(|| self.worth_waiting_for_drafts(now))
    }

    fn verifications(&self) -> impl Iterator<Item = &InFlight> {
        let batches = self.in_flight.values();
        batches.filter(|batch| batch.role == Role::Target)
    }

    /// When all results of a verification should be there; None before its first result.
    fn results_end(&self, batch: &InFlight) -> Option<Instant> {
        let tolerance = seconds(VERIFY_TOLERANCE * self.verify_seconds.value);
        Some(batch.first_result? + tolerance)
    }

    /// When rows under verification should be ready for their next verification.
    fn next_verification(&self, batch: &InFlight) -> Instant {
        let usual = (1.0 + VERIFY_TOLERANCE) * self.verify_seconds.value;
        let draft = batch.draft_tokens as f64 * (1.0 + DRAFT_TOLERANCE);
        let end = self.results_end(batch);
        end.unwrap_or(batch.started + seconds(usual))
            + seconds(draft * self.draft_token_seconds.value)
    }

    /// How long to wait for draft batches in flight; None where leaving without them costs less.
    ///
    /// Waiting delays every sequence, and a sequence left behind loses a round. Both are counted
    /// in seconds of one sequence.
    fn worth_waiting_for_drafts(&self, now: Instant) -> Option<Instant> {
        let mut arrivals: Vec<Arrival> = self.arrivals(now).collect();
        arrivals.sort_by_key(|arrival| arrival.expected);
        let mut behind: usize = arrivals.iter().map(|arrival| arrival.rows).sum();
        let sequences = (self.target.len() + behind) as f64;
        let in_flight = self.in_flight.values();
        let longest = in_flight.map(|batch| batch.draft_tokens).max().unwrap_or(0);
        let round = self.round_seconds(longest);
        let (mut least, mut latest, mut due) = (round * behind as f64, now, None);
        for arrival in arrivals {
            behind -= arrival.rows;
            latest = latest.max(arrival.latest);
            let wait = (arrival.expected - now).as_secs_f64();
            let cost = sequences * wait + round * behind as f64;
            if cost < least {
                (least, due) = (cost, Some(latest));
            }
        }
        due
    }

    /// Draft batches in flight, without those that have taken too long.
    fn arrivals(&self, now: Instant) -> impl Iterator<Item = Arrival> {
        let batches = self.in_flight.values();
        let drafts = batches.filter(|batch| batch.role == Role::Draft);
        drafts.filter_map(move |batch| {
            let usual = batch.draft_tokens as f64;
            // A call that arrives during a step of the engine begins with the next step.
            let most = usual + (DRAFT_TOLERANCE * usual).max(1.0);
            let token = self.draft_token_seconds.value;
            let latest = batch.started + seconds(most * token);
            let expected = batch.started + seconds(usual * token);
            (now < latest).then(|| Arrival {
                expected: expected.max(now),
                latest,
                rows: batch.pending,
            })
        })
    }

    /// Let draft calls that begin now end with those in flight, where that saves more than it
    /// costs. A token less costs about its share of a round.
    pub(super) fn shorten_late_drafts(&self, rows: &mut [R], now: Instant) {
        let arrivals: Vec<Arrival> = self.arrivals(now).collect();
        let arriving: usize = arrivals.iter().map(|arrival| arrival.rows).sum();
        let others = self.target.len() + arriving;
        let token = self.draft_token_seconds.value;
        let verifies = self.verifications().next().is_some();
        if self.max_rows == 1 || others == 0 || token == 0.0 || verifies {
            return;
        }
        let ends = arrivals.iter().map(|arrival| arrival.expected);
        let end = ends.max().unwrap_or(now);
        let fitting = ((end - now).as_secs_f64() / token).round().max(1.0) as usize;
        let count = rows.len() as f64;
        for row in rows {
            let draft_tokens = row.draft_tokens();
            let saved = others as f64 * token;
            let lost = count * self.round_seconds(draft_tokens) / (draft_tokens + 1) as f64;
            if row.may_shorten() && fitting < draft_tokens && saved > lost {
                row.shorten(fitting);
            }
        }
    }

    /// Seconds of a round with so many draft tokens.
    fn round_seconds(&self, draft_tokens: usize) -> f64 {
        self.verify_seconds.value + draft_tokens as f64 * self.draft_token_seconds.value
    }
}

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}
