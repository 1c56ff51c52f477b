//! The calls of the engines: who goes with whom, what came back and to whom it belongs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::bls::Bls;
use super::row::{Row, Trip};
use triton::{Code, InferenceCall, Level, Response, log};

use crate::engine::{Answered, Role, find};
use crate::error::Error;
use crate::lock::locked;
use crate::rows::{ROW, merged, single};

/// Calls of several rows that are refused one after another before no more are made.
const REFUSALS: usize = 3;

impl Bls {
    /// A row of the call `answered` has gone on, with its next call if it has one; whatever is
    /// complete by that goes to the engines.
    pub fn gathered(self: &Arc<Self>, answered: Option<u64>, row: Option<Row>) {
        let now = Instant::now();
        let mut gather = locked(&self.gather);
        if let Some(row) = row {
            gather.submit(row.call.role, row);
        }
        if let Some(number) = answered {
            gather.answered(number, now);
        }
        let batches = gather.ready(now);
        let due = gather.due(now);
        drop(gather);
        if let Some(due) = due {
            self.keeper.set_alarm(due);
        }
        for batch in batches {
            self.issue(batch.role, Some(batch.number), batch.rows);
        }
    }

    /// A call that shares its way with no other.
    pub fn alone(self: &Arc<Self>, row: Row) {
        self.issue(row.call.role, None, vec![row]);
    }

    fn issue(self: &Arc<Self>, role: Role, batch: Option<u64>, mut rows: Vec<Row>) {
        let (inputs, outputs) = match rows.as_mut_slice() {
            [row] => (single(&mut row.call), std::mem::take(&mut row.call.outputs)),
            _ => merged(&rows.iter().map(|row| &row.call).collect::<Vec<_>>()),
        };
        let lasting = rows.first().filter(|row| !row.call.round);
        let lasting = lasting.map(|row| Arc::clone(&row.prompt));
        let trip = Arc::new(Trip::new(role, batch, rows));
        let number = self.next_number();
        locked(&self.trips).insert(number, Arc::clone(&trip));
        let (bls, heard) = (Arc::clone(self), Arc::clone(&trip));
        let listener = Box::new(move |response: Response| {
            let answered = response.outputs.map(|outputs| {
                outputs.map_err(|error| {
                    let unavailable = error.code == Code::Unavailable;
                    Error::from_engine(error.message, unavailable)
                })
            });
            bls.heard(&heard, number, answered, response.is_final);
        });
        match InferenceCall::start(&self.server, self.name(role), inputs, &outputs, listener) {
            Ok(flight) => {
                if let Some(prompt) = lasting {
                    prompt.flies(Some(flight));
                }
            }
            // Told later: whoever wanted the call is not done with wanting it.
            Err(error) => {
                let unavailable = error.code == Code::Unavailable;
                self.keeper
                    .defer(number, Error::from_engine(error.message, unavailable));
            }
        }
    }

    /// An engine said something about a call.
    fn heard(self: &Arc<Self>, trip: &Trip, number: u64, answered: Option<Answered>, last: bool) {
        match answered {
            Some(Ok(tensors)) if !tensors.is_empty() => {
                let index = find(&tensors, ROW).filter(|_| trip.shared);
                let place = index.and_then(|one| one.integers().first().copied());
                if trip.shared {
                    self.refusals.store(0, Ordering::Relaxed);
                }
                if let Some(row) = trip.take(place.unwrap_or(0).max(0) as usize) {
                    self.deliver(trip, row, Ok(tensors));
                }
            }
            // Which of the rows was meant is not said.
            Some(Err(error)) if trip.shared && matches!(error, Error::EngineRefused(_)) => {
                trip.refuse()
            }
            Some(Err(error)) => self.fail(trip, error),
            _ => {}
        }
        if last {
            locked(&self.trips).remove(&number);
            let rest = trip.rest();
            if trip.was_refused() {
                self.refused(trip.role);
                // One of them may have been at fault: the others go on.
                for row in rest {
                    self.issue(trip.role, trip.batch, vec![row]);
                }
            } else if !rest.is_empty() {
                let name = self.name(trip.role);
                let words = format!("{name} ended the call without an answer: it was cancelled");
                for row in rest {
                    self.deliver(trip, row, Err(Error::EngineRefused(words.clone())));
                }
            }
        }
    }

    /// A call of several rows was refused. An engine that refuses all of them is asked for no more.
    fn refused(&self, role: Role) {
        if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 == REFUSALS {
            locked(&self.gather).go_alone();
            let name = self.name(role);
            let words = format!("{name} takes one prompt a call: answers call it one by one");
            log(Level::Warn, &words);
        }
    }

    /// What could not be told when it happened.
    pub fn failed(self: &Arc<Self>, number: u64, error: Error) {
        let trip = locked(&self.trips).remove(&number);
        if let Some(trip) = trip {
            self.fail(&trip, error);
        }
    }

    /// Every row that is left of a call gets this error.
    fn fail(self: &Arc<Self>, trip: &Trip, error: Error) {
        let error = error.map_message(|message| self.named(trip.role, message));
        for row in trip.rest() {
            self.deliver(trip, row, Err(error.clone()));
        }
    }

    fn deliver(self: &Arc<Self>, trip: &Trip, row: Row, result: Answered) {
        let seconds = trip.begun.elapsed().as_secs_f64();
        if let Some(number) = row.ahead {
            self.ahead.fetch_add(1, Ordering::AcqRel);
            row.prompt.tell(None, |answer, io| {
                answer.ahead_answered(number, result, seconds, io);
            });
            return;
        }
        if !row.call.round {
            row.prompt.flies(None);
        }
        row.prompt.tell(trip.batch, |answer, io| {
            answer.answered(result, seconds, io);
        });
    }

    /// Calls whose time has come go out.
    pub fn ring(self: &Arc<Self>) {
        self.gathered(None, None);
    }

    /// Give up the calls of engines whose process has died: they never return.
    pub fn look_after_engines(self: &Arc<Self>) {
        let dead: Vec<Role> = locked(&self.processes)
            .iter()
            .filter(|(_, process)| process.as_ref().is_some_and(|one| !one.alive()))
            .map(|(role, _)| *role)
            .collect();
        for role in dead {
            // Every time: a call may have gone out just before Triton noticed.
            let trips: Vec<Arc<Trip>> = locked(&self.trips)
                .extract_if(|_, trip| trip.role == role)
                .map(|(_, trip)| trip)
                .collect();
            for trip in trips {
                self.fail(&trip, Error::engine_died(self.name(role)));
            }
            // Some releases of Triton start another one in its place.
            if let Some(found) = self.process(role) {
                locked(&self.processes).insert(role, Some(found));
            }
        }
    }

    /// The first line of an engine's words, with its name in front.
    fn named(&self, role: Role, words: &str) -> String {
        let name = self.name(role);
        let reason = words.trim().lines().next().unwrap_or_default();
        let reason = if reason.is_empty() {
            "refused without a reason"
        } else {
            reason
        };
        if reason.starts_with(&format!("{name}:")) {
            reason.to_owned()
        } else {
            format!("{name}: {reason}")
        }
    }
}
