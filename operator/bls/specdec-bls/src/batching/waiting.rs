//! Decides how long rows wait for others, from the durations of earlier engine calls.

use std::time::{Duration, Instant};

use super::{Batchable, Batcher, SentBatch};
use crate::engine::Role;

/// A verification may exceed its usual time by this share before rows stop waiting for it. When its
/// first row has a result, the others get this share of the usual time for theirs.
const VERIFY_TOLERANCE: f64 = 0.1;
/// A draft call may exceed its usual time by this share before rows stop waiting for it.
const DRAFT_TOLERANCE: f64 = 0.5;

/// The end of a draft batch in flight, when its rows arrive for their verification.
struct Arrival {
    /// After the usual time of the call.
    expected: Instant,
    /// After the longest time that rows wait for it.
    latest: Instant,
    rows: usize,
}

impl<R: Batchable> Batcher<R> {
    /// The time at which the next waiting rows are sent, even if no other row arrives.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        [Role::Draft, Role::Target]
            .into_iter()
            .filter(|role| !self.waiting(*role).is_empty())
            .filter_map(|role| self.due_for(role, now))
            .min()
    }

    /// The time until which waiting rows wait for others; None if no others are worth waiting for.
    pub(super) fn due_for(&self, role: Role, now: Instant) -> Option<Instant> {
        if !self.synchronizes() {
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

    /// Calls of the target in flight.
    fn verifications(&self) -> impl Iterator<Item = &SentBatch> {
        let batches = self.in_flight.values();
        batches.filter(|batch| batch.role == Role::Target)
    }

    /// When all rows of a verification should have results; None before its first result.
    fn results_end(&self, batch: &SentBatch) -> Option<Instant> {
        let tolerance = seconds(VERIFY_TOLERANCE * self.verify_seconds.value);
        Some(batch.first_result? + tolerance)
    }

    /// When the rows of a verification should arrive for their next one, after a draft call.
    fn next_verification(&self, batch: &SentBatch) -> Instant {
        let usual = (1.0 + VERIFY_TOLERANCE) * self.verify_seconds.value;
        let draft = batch.draft_tokens as f64 * (1.0 + DRAFT_TOLERANCE);
        let end = self.results_end(batch);
        end.unwrap_or(batch.started + seconds(usual))
            + seconds(draft * self.draft_token_seconds.value)
    }

    /// How long to wait for draft batches in flight; None if it costs less to send at once.
    ///
    /// Waiting delays every sequence. A sequence that is not waited for loses a round. Both costs
    /// are sums of seconds over all sequences.
    fn worth_waiting_for_drafts(&self, now: Instant) -> Option<Instant> {
        let mut arrivals: Vec<Arrival> = self.arrivals(now).collect();
        arrivals.sort_by_key(|arrival| arrival.expected);
        let mut left_behind: usize = arrivals.iter().map(|arrival| arrival.rows).sum();
        let sequences = (self.target.len() + left_behind) as f64;
        let in_flight = self.in_flight.values();
        let longest = in_flight.map(|batch| batch.draft_tokens).max().unwrap_or(0);
        let round = self.round_seconds(longest);
        let (mut least, mut latest, mut due) = (round * left_behind as f64, now, None);
        for arrival in arrivals {
            left_behind -= arrival.rows;
            latest = latest.max(arrival.latest);
            let wait = (arrival.expected - now).as_secs_f64();
            let cost = sequences * wait + round * left_behind as f64;
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
            // At least one token, because a call that arrives during a step of the engine starts
            // with the next step.
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

    /// Shorten new draft calls so that they end together with those in flight, if that saves more
    /// time than it costs. Each token that is left out costs about its share of a round.
    pub(super) fn shorten_late_drafts(&mut self, rows: &mut [R], now: Instant) {
        let arrivals: Vec<Arrival> = self.arrivals(now).collect();
        let arriving: usize = arrivals.iter().map(|arrival| arrival.rows).sum();
        let others = self.target.len() + arriving;
        let token = self.draft_token_seconds.value;
        let verifies = self.verifications().next().is_some();
        if !self.synchronizes() || others == 0 || token == 0.0 || verifies {
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
                let missing = (draft_tokens - fitting) as f64;
                self.waits
                    .round_shortened(missing / (draft_tokens + 1) as f64);
            }
        }
    }

    /// Usual seconds of a round with this many draft tokens.
    fn round_seconds(&self, draft_tokens: usize) -> f64 {
        self.verify_seconds.value + draft_tokens as f64 * self.draft_token_seconds.value
    }
}

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}
