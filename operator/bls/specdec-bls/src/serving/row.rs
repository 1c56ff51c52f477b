//! Calls that share their way to an engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::prompt::Prompt;
use crate::engine::{Call, Role};
use crate::gather::Companion;
use crate::lock::locked;
use crate::rows::{alike, shorten};

/// One prompt's call.
pub struct Row {
    pub prompt: Arc<Prompt>,
    pub call: Call,
    /// The number under which an answer hears of a call beside its own.
    pub ahead: Option<u64>,
}

impl Companion for Row {
    fn alike(&self, other: &Self) -> bool {
        alike(&self.call, &other.call)
    }

    fn drafts(&self) -> usize {
        self.call.drafts
    }

    fn shortens(&self) -> bool {
        self.call.shortens
    }

    fn shorten(&mut self, drafts: usize) {
        shorten(&mut self.call, drafts);
    }
}

/// Rows under way to an engine.
pub struct Trip {
    pub role: Role,
    /// The number by which the rounds' gathering knows them.
    pub batch: Option<u64>,
    pub begun: Instant,
    /// Several rows in one call.
    pub shared: bool,
    rows: Mutex<Vec<Option<Row>>>,
    refused: AtomicBool,
}

impl Trip {
    pub fn new(role: Role, batch: Option<u64>, rows: Vec<Row>) -> Self {
        Self {
            role,
            batch,
            begun: Instant::now(),
            shared: rows.len() > 1,
            rows: Mutex::new(rows.into_iter().map(Some).collect()),
            refused: AtomicBool::new(false),
        }
    }

    /// The row of that place, for the one who asks first.
    pub fn take(&self, place: usize) -> Option<Row> {
        locked(&self.rows).get_mut(place)?.take()
    }

    /// Rows that nobody has taken.
    pub fn rest(&self) -> Vec<Row> {
        let mut rows = locked(&self.rows);
        rows.iter_mut().filter_map(Option::take).collect()
    }

    /// The call of several rows was refused.
    pub fn refuse(&self) {
        self.refused.store(true, Ordering::Release);
    }

    /// Whether it was.
    pub fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }
}
