//! A Triton backend that simulates engines, for the benchmark of the BLS.
//!
//! An engine takes time and computes nothing. The calls in flight share its steps, as with in-flight
//! batching, or each row runs at a speed of its own. Unlike the Reference backend, it needs next to
//! no processor time, so that a measurement shows the time of the BLS.
//!
//! Parameters of a model: `step_latency_ms` or `draft_step_latency_ms`, the time of a step,
//! `simulated_steps`, `Shared` or `Own`, and the two of [`Language::of`].
#![allow(non_snake_case)]

mod language;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use self::language::Language;
use serde_json::Value;
use triton::{Backend, Code, Error, Level, Model, Request, Tensor, log};

triton::export_backend!(Engine);

/// An engine: its calls that have not begun, and its threads.
struct Engine {
    step: Duration,
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

/// A call, which all of its rows share.
struct Call {
    request: Mutex<Option<Request>>,
    pending: Mutex<usize>,
}

/// A row of a call in flight.
struct Row {
    call: Arc<Call>,
    /// Steps that are left.
    steps: u32,
    outputs: Vec<Tensor>,
}

impl Backend for Engine {
    const NAME: &'static str = "simulated_engine";

    fn load(model: &Model<'_>) -> Result<Arc<Self>, Error> {
        let config: Value = serde_json::from_str(&model.config()?)
            .map_err(|error| Error::new(Code::InvalidArg, error.to_string()))?;
        let text = |key| config.pointer(&format!("/parameters/{key}/string_value"));
        let latency = text("step_latency_ms").or(text("draft_step_latency_ms"));
        let latency = latency
            .and_then(Value::as_str)
            .and_then(|it| it.parse().ok());
        let milliseconds: f64 = latency.unwrap_or(0.0);
        let shared = text("simulated_steps").and_then(Value::as_str) != Some("Own");
        let engine = Arc::new(Self {
            step: Duration::from_secs_f64(milliseconds / 1000.0),
            language: Language::of(&config)?,
            arrivals: Mutex::default(),
            changed: Condvar::new(),
            threads: Mutex::default(),
        });
        let stepping = Arc::clone(&engine);
        // Results are sent by another thread, because their receiver works on the thread that sends.
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
    fn run_shared(&self, finished: &Sender<Row>) {
        let mut running: Vec<Row> = Vec::new();
        let mut end = Instant::now();
        loop {
            if running.is_empty() {
                let Some(arrived) = self.first_arrival() else {
                    return;
                };
                end = end.max(arrived);
            }
            let arrived = std::mem::take(&mut lock(&self.arrivals).calls);
            running.extend(
                arrived
                    .into_iter()
                    .flat_map(|(_, request)| rows(request, &self.language)),
            );
            end += self.step;
            sleep_until(end);
            running.iter_mut().for_each(|row| row.steps -= 1);
            for row in running.extract_if(.., |row| row.steps == 0) {
                drop(finished.send(row));
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
    fn run_own(&self, finished: &Sender<Row>) {
        // Rows by the time of their result, and by a number.
        let mut running: BTreeMap<(Instant, u64), Row> = BTreeMap::new();
        let (mut number, mut numbers) = (0, Numbers(1));
        loop {
            while let Some(next) = running.first_entry()
                && next.key().0 <= Instant::now()
            {
                drop(finished.send(next.remove()));
            }
            let next = running.first_key_value().map(|(key, _)| key.0);
            let mut arrivals = self.wait(lock(&self.arrivals), next);
            if arrivals.closed {
                return;
            }
            for (arrived, request) in std::mem::take(&mut arrivals.calls) {
                for row in rows(request, &self.language) {
                    let factor = 0.5 + 1.5 * numbers.next();
                    let seconds = self.step.mul_f64(f64::from(row.steps) * factor);
                    number += 1;
                    running.insert((arrived + seconds, number), row);
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

impl Row {
    fn send(self) {
        let mut pending = lock(&self.call.pending);
        *pending -= 1;
        let request = lock(&self.call.request);
        let sent = request
            .as_ref()
            .map(|it| it.send(&self.outputs, *pending == 0));
        if let Some(Err(error)) = sent {
            log(Level::Error, &error.message);
        }
        drop(request);
        if *pending == 0
            && let Some(request) = lock(&self.call.request).take()
        {
            request.release(true);
        }
    }
}

fn send_all(finished: &Receiver<Row>) {
    finished.iter().for_each(Row::send);
}

/// The rows of a request, with the outputs that they will have.
fn rows(request: Request, language: &Language) -> Vec<Row> {
    let tensors = request.tensors().unwrap_or_default();
    let input = |name: &str| tensors.iter().find(|tensor| tensor.name == name);
    let Some(ids) = input("input_ids") else {
        return Vec::new();
    };
    let count = ids.shape.first().copied().unwrap_or(0).max(0) as usize;
    let call = Arc::new(Call {
        request: Mutex::new(None),
        pending: Mutex::new(count),
    });
    let value = |name: &str, row: usize| {
        let values = input(name).map(Tensor::integers).unwrap_or_default();
        values.get(row).copied().unwrap_or(0).max(0) as usize
    };
    let of_row = |tensor: &Tensor, row: usize| {
        let values = tensor.integers();
        let width = values.len() / count;
        values[row * width..(row + 1) * width].to_vec()
    };
    let rows = (0..count).map(|row| {
        let mut whole = of_row(ids, row);
        whole.truncate(value("input_lengths", row));
        let drafts = input("draft_input_ids").map(|tensor| of_row(tensor, row));
        let new = value("request_output_len", row);
        let proposes = input("min_length").is_some() || input("min_tokens").is_some();
        let steps = drafts.as_ref().map_or(new, |_| 1).max(1) as u32;
        language.extend(&mut whole, drafts.as_deref(), new, proposes);
        let length = whole.len() as i32;
        let whole: Vec<i32> = whole.into_iter().map(|token| token as i32).collect();
        let outputs = vec![
            Tensor::int32("output_ids", &[1, 1, whole.len() as i64], &whole),
            Tensor::scalar("sequence_length", length),
            Tensor::scalar("batch_index", row as i32),
        ];
        Row {
            call: Arc::clone(&call),
            steps,
            outputs,
        }
    });
    let rows = rows.collect();
    *lock(&call.request) = Some(request);
    rows
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
