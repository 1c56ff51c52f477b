//! The loaded model: everything that its requests share.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use triton::Server;

use super::in_flight::InFlightSequence;
use super::in_flight_call::{InFlightCall, Row};
use super::metrics::Metrics;
use super::pool::{Pool, spawn};
use super::process::Process;
use super::reply::Reply;
use super::stops::Stops;
use super::watchdog::Watchdog;
use crate::batching::Batcher;
use crate::config::Settings;
use crate::draft_length::{AdaptivePolicy, FixedLength, LengthPolicy};
use crate::engine::Role;
use crate::error::Error;
use crate::lock::locked;
use crate::lookup::memory::Memory;
use crate::request::limits::Limits;
use crate::request::task::Task;
use crate::sequence::{Event, Resources, Sequence};
use crate::tokenizer::Tokenizer;

/// The loaded model `tensorrt_llm_bls`.
pub struct Bls {
    pub(super) settings: Settings,
    pub(super) server: Server,
    pub(super) tokenizer: Arc<dyn Tokenizer>,
    pub(super) limits: Limits,
    pub(super) metrics: Arc<Metrics>,
    pub(super) policy: Option<AdaptivePolicy>,
    /// Finished texts that lookups search, by scope.
    pub(super) memory: Option<Arc<Memory>>,
    pub(super) batcher: Mutex<Batcher<Row>>,
    /// Pipelined draft calls that may be sent beside those in flight.
    pub(super) pipelined_slots: AtomicUsize,
    /// Calls with several rows that were refused since the last one that succeeded.
    pub(super) refusals: AtomicUsize,
    /// For sequences and engine calls.
    next_number: AtomicU64,
    slots: Slots,
    /// Requests that a client may stop.
    pub(super) stops: Arc<Stops>,
    /// Sequences in flight by their numbers.
    sequences: Mutex<HashMap<u64, Arc<InFlightSequence>>>,
    /// Engine calls in flight by their numbers.
    pub(super) calls: Mutex<HashMap<u64, Arc<InFlightCall>>>,
    /// The process of each engine; None for an engine inside the server's process.
    pub(super) processes: Mutex<HashMap<Role, Option<Process>>>,
    pub(super) watchdog: Watchdog,
    pub(super) pool: Pool,
}

/// A semaphore: bounds the sequences in flight.
struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Slots {
    fn acquire(&self) {
        let free = locked(&self.free);
        let mut free = self
            .freed
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
    }

    fn release(&self) {
        *locked(&self.free) += 1;
        self.freed.notify_one();
    }
}

impl Bls {
    /// A model that is ready for requests.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn new(
        settings: Settings,
        server: Server,
        tokenizer: Arc<dyn Tokenizer>,
        metrics: Metrics,
    ) -> Result<Arc<Self>, Error> {
        let policy = settings.adaptive.map(|bounds| {
            let started = Instant::now();
            let clock = move || started.elapsed().as_secs_f64();
            AdaptivePolicy::new(bounds.least, bounds.most, bounds.start, Box::new(clock))
        });
        let batcher = Batcher::new(
            settings.max_batch_size,
            settings.rows_per_call,
            settings.synchronization,
        );
        let max_seq_len = settings.capabilities.max_seq_len;
        let bls = Arc::new(Self {
            server,
            limits: Limits::new(max_seq_len, tokenizer.bytes_per_token()),
            pool: Pool::start(&spawn)?,
            tokenizer,
            metrics: Arc::new(metrics),
            policy,
            memory: settings.lookup_memory_bytes.map(Memory::new).map(Arc::new),
            batcher: Mutex::new(batcher),
            pipelined_slots: AtomicUsize::new(settings.pipelined_sequences),
            refusals: AtomicUsize::new(0),
            next_number: AtomicU64::new(0),
            slots: Slots {
                free: Mutex::new(settings.max_in_flight),
                freed: Condvar::new(),
            },
            stops: Arc::default(),
            sequences: Mutex::default(),
            calls: Mutex::default(),
            processes: Mutex::default(),
            watchdog: Watchdog::default(),
            settings,
        });
        if let Err(error) = bls.watchdog.start(&bls, &spawn) {
            bls.close();
            return Err(error);
        }
        Ok(bls)
    }

    /// End the threads. Triton unloads a model only when nothing is in flight.
    pub fn close(&self) {
        self.watchdog.close();
        self.pool.close();
    }

    /// Wait for a slot of a sequence, take it, and count the sequence as in flight.
    pub(super) fn acquire_slot(&self) {
        self.slots.acquire();
        self.metrics.in_flight(1);
        self.metrics.running(1);
    }

    /// Start the sequence of the prompt at index `row` of its request.
    pub(super) fn start(self: &Arc<Self>, row: usize, task: Arc<Task>, reply: &Arc<Reply>) {
        let policy: Box<dyn LengthPolicy> = match &self.policy {
            // If the target compares the draft's logits, the length of a proposal must not depend
            // on the tokens drawn.
            Some(policy) if task.adaptive && task.use_draft_logits => Box::new(policy.sequence()),
            Some(policy) if task.adaptive => Box::new(policy.cutting_sequence()),
            _ => Box::new(FixedLength(task.draft_tokens)),
        };
        let resources = Resources {
            tokenizer: Arc::clone(&self.tokenizer),
            policy,
            has_draft: self.settings.draft.is_some(),
            pipelined: self.settings.pipelined_sequences > 0,
            streams: self.settings.decoupled,
            lookup: self.lookup(&task),
        };
        let sequence = Sequence::new(Arc::clone(&task), resources);
        let number = self.next_number();
        let (bls, reply) = (Arc::clone(self), Arc::clone(reply));
        let in_flight = Arc::new(InFlightSequence::new(
            number, bls, task, row, reply, sequence,
        ));
        locked(&self.sequences).insert(number, Arc::clone(&in_flight));
        self.watchdog.wake();
        in_flight.deliver(Event::Started, None);
    }

    /// Release the slot of a sequence that has ended; false if that was done before.
    pub fn release_slot(&self, number: u64) -> bool {
        let removed = locked(&self.sequences).remove(&number).is_some();
        if removed {
            self.metrics.in_flight(-1);
            self.metrics.running(-1);
            self.slots.release();
        }
        removed
    }

    /// Take the slot of a pipelined draft call; false if none is free.
    ///
    /// With more sequences in flight than may be pipelined, the draft is busy anyway, and
    /// pipelined calls would delay all sequences.
    pub fn take_pipelined_slot(&self) -> bool {
        if locked(&self.sequences).len() > self.settings.pipelined_sequences {
            return false;
        }
        let take = |free: usize| free.checked_sub(1);
        self.pipelined_slots
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .is_ok()
    }

    /// Whether a sequence is in flight.
    pub fn is_busy(&self) -> bool {
        !locked(&self.sequences).is_empty()
    }

    /// Let every sequence in flight check its client and its timeout.
    pub fn tick(&self) {
        let sequences: Vec<Arc<InFlightSequence>> =
            locked(&self.sequences).values().cloned().collect();
        for sequence in sequences {
            sequence.tick();
        }
    }

    /// Find the process of each engine, unless it was searched before.
    pub(super) fn find_processes(&self) {
        let mut processes = locked(&self.processes);
        let draft = self.settings.draft.is_some().then_some(Role::Draft);
        for role in [Some(Role::Target), draft].into_iter().flatten() {
            processes.entry(role).or_insert_with(|| self.process(role));
        }
    }

    /// The process of an engine; None for an engine inside the server's process.
    pub(super) fn process(&self, role: Role) -> Option<Process> {
        Process::of(
            self.engine_name(role),
            std::process::id(),
            Path::new("/proc"),
        )
    }

    pub(super) fn engine_name(&self, role: Role) -> &str {
        match role {
            Role::Target => &self.settings.target,
            Role::Draft => self.settings.draft.as_deref().unwrap_or_default(),
        }
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }
}
