//! One thread that wakes rows that waited long enough, and looks after everybody.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::bls::Bls;
use crate::error::Error;
use crate::lock::locked;
use crate::pool::Spawn;

/// Between two looks for clients that went away.
const LOOK: Duration = Duration::from_millis(50);
/// Between two looks for engines that died, in looks for clients.
const LOOKS: u32 = 5;

#[derive(Default)]
struct State {
    alarm: Option<Instant>,
    deferred: Vec<(u64, Error)>,
    awake: bool,
    closed: bool,
}

/// Sleeps while nobody is being answered.
#[derive(Default)]
pub struct Keeper {
    state: Mutex<State>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Keeper {
    /// Begin to look after a model.
    ///
    /// # Errors
    /// The thread cannot be started; without it no answer would end that waits for an engine.
    pub fn start(&self, bls: &Arc<Bls>, spawn: Spawn) -> Result<(), Error> {
        let kept = Arc::clone(bls);
        let body = Box::new(move || kept.keeper.run(&kept));
        let thread =
            spawn("speculation".to_owned(), body).map_err(|error| Error::thread(&error))?;
        *locked(&self.thread) = Some(thread);
        Ok(())
    }

    /// End the thread.
    pub fn close(&self) {
        locked(&self.state).closed = true;
        self.changed.notify_all();
        let thread = locked(&self.thread).take();
        if let Some(thread) = thread {
            // It cannot have failed: whatever it calls catches its own failures.
            let _ = thread.join();
        }
    }

    /// Somebody is being answered.
    pub fn wake(&self) {
        let mut state = locked(&self.state);
        if !std::mem::replace(&mut state.awake, true) {
            self.changed.notify_all();
        }
    }

    /// Rows wait that go at that time at the latest.
    pub fn set_alarm(&self, at: Instant) {
        let mut state = locked(&self.state);
        if state.alarm.is_none_or(|alarm| at < alarm) {
            state.alarm = Some(at);
            self.changed.notify_all();
        }
    }

    /// Tell that a call could not be made, from another thread than the one that wanted it.
    pub fn defer(&self, call: u64, error: Error) {
        locked(&self.state).deferred.push((call, error));
        self.changed.notify_all();
    }

    fn run(&self, bls: &Arc<Bls>) {
        let mut next = Instant::now() + LOOK;
        let mut looks = 0;
        loop {
            let Some(deferred) = self.wait(next) else {
                return;
            };
            for (call, error) in deferred {
                bls.failed(call, error);
            }
            bls.ring();
            if Instant::now() < next {
                continue;
            }
            next = Instant::now() + LOOK;
            looks += 1;
            bls.look();
            if looks % LOOKS == 0 {
                bls.look_after_engines();
            }
            if !bls.is_busy() {
                locked(&self.state).awake = false;
            }
        }
    }

    /// Wait for news or that time; the calls that failed, None when it is over.
    fn wait(&self, next: Instant) -> Option<Vec<(u64, Error)>> {
        let mut state = locked(&self.state);
        loop {
            if state.closed {
                return None;
            }
            let now = Instant::now();
            let alarm = state.alarm.filter(|alarm| *alarm <= now);
            if alarm.is_some() {
                state.alarm = None;
            }
            if alarm.is_some() || !state.deferred.is_empty() || (state.awake && now >= next) {
                return Some(std::mem::take(&mut state.deferred));
            }
            let look = state.awake.then_some(next);
            state = match [look, state.alarm].into_iter().flatten().min() {
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
