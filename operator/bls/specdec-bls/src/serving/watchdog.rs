//! A thread that sends batches that have waited long enough, and detects disconnected clients and
//! dead engines.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::model::Bls;
use super::pool::Spawn;
use crate::error::Error;
use crate::lock::locked;

/// Time between two checks for disconnected clients.
const TICK: Duration = Duration::from_millis(50);
/// Ticks between two checks for dead engines.
const TICKS_PER_ENGINE_CHECK: u32 = 5;

#[derive(Default)]
struct State {
    /// When the next batch has waited long enough.
    alarm: Option<Instant>,
    /// A sequence is in flight.
    busy: bool,
    closed: bool,
}

/// The thread and its state. It sleeps while no sequence is in flight and no alarm is set.
#[derive(Default)]
pub struct Watchdog {
    state: Mutex<State>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Watchdog {
    /// Start the thread.
    ///
    /// # Errors
    /// The thread cannot be started. Without it, calls of a dead engine would never end.
    pub fn start(&self, bls: &Arc<Bls>, spawn: Spawn) -> Result<(), Error> {
        let watched = Arc::clone(bls);
        let body = Box::new(move || watched.watchdog.run(&watched));
        let thread = spawn("watchdog".to_owned(), body);
        let thread = thread.map_err(|error| Error::thread(&error))?;
        *locked(&self.thread) = Some(thread);
        Ok(())
    }

    /// End the thread.
    pub fn close(&self) {
        locked(&self.state).closed = true;
        self.changed.notify_all();
        let thread = locked(&self.thread).take();
        if let Some(thread) = thread {
            // If it has panicked, the server's log has the message, and nothing else can be done.
            drop(thread.join());
        }
    }

    /// Report that a sequence is in flight, so that ticks are needed.
    pub fn wake(&self) {
        let mut state = locked(&self.state);
        if !std::mem::replace(&mut state.busy, true) {
            self.changed.notify_all();
        }
    }

    /// Wake the thread at this time to send batches, unless an earlier alarm is set.
    pub fn set_alarm(&self, at: Instant) {
        let mut state = locked(&self.state);
        if state.alarm.is_none_or(|alarm| at < alarm) {
            state.alarm = Some(at);
            self.changed.notify_all();
        }
    }

    fn run(&self, bls: &Arc<Bls>) {
        let mut next = Instant::now() + TICK;
        let mut ticks = 0_u32;
        while self.wait(next) {
            bls.flush();
            if Instant::now() < next {
                continue;
            }
            next = Instant::now() + TICK;
            ticks = ticks.wrapping_add(1);
            bls.tick();
            if ticks.is_multiple_of(TICKS_PER_ENGINE_CHECK) {
                bls.check_engines();
            }
            if !bls.is_busy() {
                locked(&self.state).busy = false;
            }
        }
    }

    /// Wait for the alarm or, while a sequence is in flight, for the tick at `next`; false when the
    /// thread has to end.
    fn wait(&self, next: Instant) -> bool {
        let mut state = locked(&self.state);
        loop {
            if state.closed {
                return false;
            }
            let now = Instant::now();
            let expired = state.alarm.take_if(|alarm| *alarm <= now).is_some();
            if expired || (state.busy && now >= next) {
                return true;
            }
            let tick = state.busy.then_some(next);
            state = match [tick, state.alarm].into_iter().flatten().min() {
                Some(until) => {
                    let waited = self.changed.wait_timeout(state, until - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
