//! The threads that parse requests, which takes long for long texts.
//!
//! Short and long jobs have separate threads and queues, so that long jobs never delay a short one.
//! A single thread runs the long jobs, so that only one of them needs its memory at a time.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::error::Error;
use crate::lock::locked;

/// What a thread runs. When the pool closes, waiting jobs are dropped.
pub type Job = Box<dyn FnOnce() + Send>;

/// Threads for short jobs.
const SHORT_THREADS: usize = 2;
/// Most short jobs that wait in the queue. A caller with another one is blocked.
const SHORT_QUEUE: usize = 8;
/// Most bytes of text of all long jobs that wait, unless a single one has more.
const LONG_BYTES: usize = 64 << 20;

/// Starts a thread with a name and a body. Tests pass a function that fails.
pub type Spawn<'a> = &'a dyn Fn(String, Job) -> std::io::Result<JoinHandle<()>>;

/// Start a thread with this name.
pub fn spawn(name: String, body: Job) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(body)
}

/// The queue of one kind of jobs.
#[derive(Default)]
struct Jobs {
    waiting: VecDeque<(usize, Job)>,
    /// Bytes of text of all waiting jobs.
    bytes: usize,
    closed: bool,
}

/// The queue of short or of long jobs, with its conditions.
#[derive(Default)]
struct Lane {
    jobs: Mutex<Jobs>,
    added: Condvar,
    taken: Condvar,
}

/// The threads and the queues of their jobs.
pub struct Pool {
    short: Arc<Lane>,
    long: Arc<Lane>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    /// Start the threads.
    ///
    /// # Errors
    /// A thread cannot be started. Those that were started have ended.
    pub fn start(spawn: Spawn) -> Result<Self, Error> {
        let pool = Self {
            short: Arc::default(),
            long: Arc::default(),
            threads: Mutex::default(),
        };
        for number in 0..=SHORT_THREADS {
            let lane = if number < SHORT_THREADS {
                &pool.short
            } else {
                &pool.long
            };
            let lane = Arc::clone(lane);
            match spawn(format!("encode-{number}"), Box::new(move || lane.run())) {
                Ok(thread) => locked(&pool.threads).push(thread),
                Err(error) => {
                    pool.close();
                    return Err(Error::thread(&error));
                }
            }
        }
        Ok(pool)
    }

    /// Run a short job on a thread of the pool. Blocks while the queue is full.
    pub fn run_short(&self, job: Job) {
        let full = |jobs: &mut Jobs| jobs.waiting.len() >= SHORT_QUEUE && !jobs.closed;
        let jobs = locked(&self.short.jobs);
        let waited = self.short.taken.wait_while(jobs, full);
        waited.unwrap_or_else(PoisonError::into_inner).add(0, job);
        self.short.added.notify_one();
    }

    /// Whether a long job with this many bytes may be added to the queue.
    pub fn has_room(&self, bytes: usize) -> bool {
        let jobs = locked(&self.long.jobs);
        jobs.waiting.is_empty() || jobs.bytes.saturating_add(bytes) <= LONG_BYTES
    }

    /// Run a long job with this many bytes on a thread of the pool. Never blocks.
    pub fn run_long(&self, bytes: usize, job: Job) {
        locked(&self.long.jobs).add(bytes, job);
        self.long.added.notify_one();
    }

    /// End the threads after their present jobs. Waiting jobs are dropped.
    pub fn close(&self) {
        for lane in [&self.short, &self.long] {
            let dropped = {
                let mut jobs = locked(&lane.jobs);
                jobs.closed = true;
                std::mem::take(&mut jobs.waiting)
            };
            lane.added.notify_all();
            lane.taken.notify_all();
            drop(dropped);
        }
        let threads = std::mem::take(&mut *locked(&self.threads));
        for thread in threads {
            // It cannot have panicked: the panics of its jobs are caught.
            drop(thread.join());
        }
    }
}

impl Jobs {
    fn add(&mut self, bytes: usize, job: Job) {
        if !self.closed {
            self.bytes += bytes;
            self.waiting.push_back((bytes, job));
        }
    }
}

impl Lane {
    fn run(&self) {
        while let Some(job) = self.next() {
            // A panic drops the job's request, which sends its client an error.
            drop(catch_unwind(AssertUnwindSafe(job)));
        }
    }

    /// Wait for a job and take the oldest one; None when the pool closes.
    fn next(&self) -> Option<Job> {
        let jobs = locked(&self.jobs);
        let idle = |jobs: &mut Jobs| jobs.waiting.is_empty() && !jobs.closed;
        let waited = self.added.wait_while(jobs, idle);
        let mut jobs = waited.unwrap_or_else(PoisonError::into_inner);
        let (bytes, job) = jobs.waiting.pop_front()?;
        jobs.bytes -= bytes;
        drop(jobs);
        self.taken.notify_one();
        Some(job)
    }
}
