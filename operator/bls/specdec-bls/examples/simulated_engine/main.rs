//! A Triton backend that simulates engines, for the benchmark of the BLS.
//!
//! An engine takes time and computes nothing. The calls in flight share its steps, as with
//! in-flight batching, or each row runs at a speed of its own. Unlike the Reference backend, it
//! needs next to no processor time, so that a measurement shows the time of the BLS.
//!
//! At most `max_batch_size` rows share a step; the others wait for a place. As in TensorRT-LLM, a
//! row keeps its place after its call was cancelled, until the engine checks for cancelled calls.
//!
//! Parameters of a model: `step_latency_ms` or `draft_step_latency_ms` is the time of a step.
//! `simulated_steps` is `Shared` or `Own`. `cancellation_check_period_ms` is the time between two
//! checks for cancelled calls. [`Language::of`] reads the other parameters.
#![allow(non_snake_case)]

mod language;
mod rows;

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use self::language::Language;
use self::rows::{Answer, Row, rows};
use serde_json::Value;
use triton::{Backend, Code, Error, Model, Request};

triton::export_backend!(Engine);

/// The default of TensorRT-LLM's backend.
const CANCELLATION_PERIOD: Duration = Duration::from_millis(100);

/// An engine: its calls that have not begun, and its threads.
struct Engine {
    step: Duration,
    /// Most rows that share a step.
    max_rows: usize,
    /// Time between two searches for cancelled calls.
    cancellation_period: Duration,
    language: Language,
    arrivals: Mutex<Arrivals>,
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Arrivals {
    calls: Vec<(Instant, Request)>,
    closed: bool,
}

impl Backend for Engine {
    const NAME: &'static str = "simulated_engine";

    fn load(model: &Model<'_>) -> Result<Arc<Self>, Error> {
        let config: Value = serde_json::from_str(&model.config()?)
            .map_err(|error| Error::new(Code::InvalidArg, error.to_string()))?;
        let text = |key| config.pointer(&format!("/parameters/{key}/string_value"));
        let milliseconds = |key| {
            let value = text(key).and_then(Value::as_str);
            let value = value.and_then(|it| it.parse::<f64>().ok());
            value.map(|it| Duration::from_secs_f64(it / 1000.0))
        };
        let latency = milliseconds("step_latency_ms").or(milliseconds("draft_step_latency_ms"));
        let max_rows = config["max_batch_size"].as_u64().unwrap_or(0).max(1);
        let shared = text("simulated_steps").and_then(Value::as_str) != Some("Own");
        let engine = Arc::new(Self {
            step: latency.unwrap_or_default(),
            max_rows: max_rows as usize,
            cancellation_period: milliseconds("cancellation_check_period_ms")
                .unwrap_or(CANCELLATION_PERIOD),
            language: Language::of(&config)?,
            arrivals: Mutex::default(),
            changed: Condvar::new(),
            threads: Mutex::default(),
        });
        let stepping = Arc::clone(&engine);
        // Another thread sends the results, because Triton runs the caller's listener on the thread
        // that sends.
        let (sender, receiver) = channel();
        let sending = spawn(move || send_all(&receiver));
        let stepping = spawn(move || match shared {
            true => stepping.run_shared(&sender),
            false => stepping.run_own(&sender),
        });
        lock(&engine.threads).extend([sending, stepping]);
        Ok(engine)
    }

    fn accept(self: &Arc<Self>, request: Request) {
        self.accept_batch(vec![request]);
    }

    /// The requests of a batch arrive together, as those that TensorRT-LLM's backend enqueues do.
    fn accept_batch(self: &Arc<Self>, requests: Vec<Request>) {
        let now = Instant::now();
        let mut arrivals = lock(&self.arrivals);
        arrivals
            .calls
            .extend(requests.into_iter().map(|request| (now, request)));
        self.changed.notify_all();
    }

    fn unload(&self) {
        lock(&self.arrivals).closed = true;
        self.changed.notify_all();
        for thread in lock(&self.threads).drain(..) {
            drop(thread.join());
        }
    }
}

impl Engine {
    /// Run steps that all rows in flight share. A step begins with the rows that have arrived.
    fn run_shared(&self, answers: &Sender<Answer>) {
        let mut waiting: VecDeque<Row> = VecDeque::new();
        let mut running: Vec<Row> = Vec::new();
        let mut end = Instant::now();
        let mut searched = end;
        loop {
            if running.is_empty() && waiting.is_empty() {
                let Some(arrived) = self.first_arrival() else {
                    return;
                };
                end = end.max(arrived);
            }
            let arrived = std::mem::take(&mut lock(&self.arrivals).calls);
            waiting.extend(
                arrived
                    .into_iter()
                    .flat_map(|(_, request)| rows(request, &self.language)),
            );
            let room = self.max_rows.saturating_sub(running.len());
            running.extend(waiting.drain(..room.min(waiting.len())));
            end += self.step;
            sleep_until(end);
            for answer in running.iter_mut().filter_map(Row::step) {
                drop(answers.send(answer));
            }
            running.retain(|row| row.steps > 0);
            if end - searched >= self.cancellation_period {
                searched = end;
                for row in running.extract_if(.., |row| row.is_cancelled()) {
                    drop(answers.send(row.end()));
                }
            }
        }
    }

    /// Wait for a call, and return when it arrived; None when the model is unloaded.
    fn first_arrival(&self) -> Option<Instant> {
        let arrivals = lock(&self.arrivals);
        let idle = |arrivals: &mut Arrivals| arrivals.calls.is_empty() && !arrivals.closed;
        let arrivals = self.changed.wait_while(arrivals, idle);
        let arrivals = arrivals.unwrap_or_else(PoisonError::into_inner);
        arrivals.calls.first().map(|(arrived, _)| *arrived)
    }

    /// Run each row at a speed of its own: a step takes half to twice the usual time.
    fn run_own(&self, answers: &Sender<Answer>) {
        // Rows with the duration of their steps. The key is when the next response is due, and a
        // number that makes the key unique.
        let mut running: BTreeMap<(Instant, u64), (Row, Duration)> = BTreeMap::new();
        let (mut number, mut numbers) = (0, Numbers(1));
        let mut searched = Instant::now();
        loop {
            while let Some(next) = running.first_entry()
                && next.key().0 <= Instant::now()
            {
                let ((due, number), (mut row, step)) = next.remove_entry();
                let answer = std::iter::repeat_with(|| row.step()).find_map(|answer| answer);
                drop(answer.map(|answer| answers.send(answer)));
                if row.steps > 0 {
                    running.insert((due + step, number), (row, step));
                }
            }
            if searched.elapsed() >= self.cancellation_period {
                searched = Instant::now();
                running.retain(|_, (row, _)| {
                    let cancelled = row.is_cancelled();
                    if cancelled {
                        drop(answers.send(row.end()));
                    }
                    !cancelled
                });
            }
            let next = running.first_key_value().map(|(key, _)| key.0);
            let mut arrivals = self.wait(lock(&self.arrivals), next);
            if arrivals.closed {
                return;
            }
            for (arrived, request) in std::mem::take(&mut arrivals.calls) {
                for row in rows(request, &self.language) {
                    let step = self.step.mul_f64(0.5 + 1.5 * numbers.next());
                    let responds_after = if row.is_streamed() { 1 } else { row.steps };
                    number += 1;
                    running.insert((arrived + step * responds_after, number), (row, step));
                }
            }
        }
    }

    /// Wait for a call, until the next result is due.
    fn wait<'a>(
        &self,
        arrivals: MutexGuard<'a, Arrivals>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, Arrivals> {
        if !arrivals.calls.is_empty() || arrivals.closed {
            return arrivals;
        }
        let Some(until) = until else {
            let waited = self.changed.wait(arrivals);
            return waited.unwrap_or_else(PoisonError::into_inner);
        };
        let time = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout(arrivals, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn send_all(answers: &Receiver<Answer>) {
    answers.iter().for_each(Answer::send);
}

/// Pseudorandom numbers from 0 to 1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as f64 / f64::from(1_u32 << 31)
    }
}

fn sleep_until(end: Instant) {
    sleep(end.saturating_duration_since(Instant::now()));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
