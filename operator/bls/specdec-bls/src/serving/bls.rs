//! The model `tensorrt_llm_bls`: everything that its requests share.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::keeper::Keeper;
use super::metrics::Metrics;
use super::process::Process;
use super::prompt::Prompt;
use super::reply::Reply;
use super::row::{Row, Trip};
use triton::Server;

use crate::answer::{Answer, Means};
use crate::config::Settings;
use crate::engine::Role;
use crate::error::Error;
use crate::gather::Gather;
use crate::limits::Limits;
use crate::lock::locked;
use crate::policy::{AdaptiveLength, FixedLength, Lengths};
use crate::pool::{Pool, spawn};
use crate::task::Task;
use crate::tokenizer::Tokenizer;

/// The model and what it does at the moment.
pub struct Bls {
    pub(super) settings: Settings,
    pub(super) server: Server,
    pub(super) tokenizer: Arc<dyn Tokenizer>,
    pub(super) limits: Limits,
    pub(super) metrics: Arc<Metrics>,
    policy: Option<AdaptiveLength>,
    pub(super) gather: Mutex<Gather<Row>>,
    pub(super) ahead: AtomicUsize,
    /// Calls of several rows that were refused, since one was answered.
    pub(super) refusals: AtomicUsize,
    number: AtomicU64,
    places: Places,
    prompts: Mutex<HashMap<u64, Arc<Prompt>>>,
    pub(super) trips: Mutex<HashMap<u64, Arc<Trip>>>,
    pub(super) processes: Mutex<HashMap<Role, Option<Process>>>,
    pub(super) keeper: Keeper,
    pub(super) pool: Pool,
}

/// Prompts in flight, bounded.
struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Places {
    fn take(&self) {
        let free = locked(&self.free);
        let mut free = self
            .freed
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
    }

    fn give(&self) {
        *locked(&self.free) += 1;
        self.freed.notify_one();
    }
}

impl Bls {
    /// A model that is ready for requests.
    ///
    /// # Errors
    /// The system starts no further threads.
    pub fn new(
        settings: Settings,
        server: Server,
        tokenizer: Arc<dyn Tokenizer>,
        metrics: Metrics,
    ) -> Result<Arc<Self>, Error> {
        let metrics = Arc::new(metrics);
        let policy = settings.adaptive.map(|bounds| {
            let told = Arc::clone(&metrics);
            let begun = Instant::now();
            AdaptiveLength::new(
                bounds.least,
                bounds.most,
                bounds.start,
                Box::new(move |length| told.draft_length(length)),
                Box::new(move || begun.elapsed().as_secs_f64()),
            )
        });
        // Engines take several prompts in a call only where they may answer one by one.
        let rows = if settings.decoupled {
            settings.max_batch_size
        } else {
            1
        };
        let bls = Arc::new(Self {
            server,
            limits: Limits::new(settings.server.max_seq_len, tokenizer.bytes_per_token()),
            pool: Pool::start(&spawn)?,
            tokenizer,
            metrics,
            policy,
            gather: Mutex::new(Gather::new(rows)),
            ahead: AtomicUsize::new(settings.draft_ahead),
            refusals: AtomicUsize::new(0),
            number: AtomicU64::new(0),
            places: Places {
                free: Mutex::new(settings.max_in_flight),
                freed: Condvar::new(),
            },
            prompts: Mutex::default(),
            trips: Mutex::default(),
            processes: Mutex::default(),
            keeper: Keeper::default(),
            settings,
        });
        if let Err(error) = bls.keeper.start(&bls, &spawn) {
            bls.close();
            return Err(error);
        }
        Ok(bls)
    }

    /// End the threads; nothing is in flight when a model goes.
    pub fn close(&self) {
        self.keeper.close();
        self.pool.close();
    }

    /// Wait until one more prompt may be answered, and count it.
    pub(super) fn take_slot(&self) {
        self.places.take();
        self.metrics.in_flight(1);
    }

    pub(super) fn begin(self: &Arc<Self>, row: usize, task: Arc<Task>, reply: &Arc<Reply>) {
        let lengths: Box<dyn Lengths> = match &self.policy {
            Some(policy) if task.adaptive => Box::new(policy.answer()),
            _ => Box::new(FixedLength(task.draft_tokens)),
        };
        let means = Means {
            tokenizer: Arc::clone(&self.tokenizer),
            lengths,
            meter: Arc::clone(&self.metrics) as _,
            has_draft: self.settings.draft.is_some(),
            ahead: self.settings.draft_ahead > 0,
        };
        let answer = Answer::new(Arc::clone(&task), means);
        let number = self.next_number();
        let prompt = Prompt::new(
            number,
            Arc::clone(self),
            task,
            row,
            Arc::clone(reply),
            answer,
        );
        let prompt = Arc::new(prompt);
        locked(&self.prompts).insert(number, Arc::clone(&prompt));
        self.keeper.wake();
        prompt.tell(None, |answer, io| answer.begin(io));
    }

    /// A prompt has its whole answer.
    pub fn ended(&self, number: u64) {
        locked(&self.prompts).remove(&number);
        self.metrics.in_flight(-1);
        self.places.give();
    }

    /// Whether the draft may work ahead for one more answer. With more answers in flight than it
    /// may work ahead for, it is busy anyway, and a call beside theirs would hold all of them up.
    pub fn take_ahead(&self) -> bool {
        locked(&self.prompts).len() <= self.settings.draft_ahead && self.take_free_ahead()
    }

    fn take_free_ahead(&self) -> bool {
        self.ahead
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| {
                free.checked_sub(1)
            })
            .is_ok()
    }

    /// Whether anybody is being answered.
    pub fn is_busy(&self) -> bool {
        !locked(&self.prompts).is_empty()
    }

    /// Look after every prompt in flight.
    pub fn look(&self) {
        let prompts: Vec<Arc<Prompt>> = locked(&self.prompts).values().cloned().collect();
        for prompt in prompts {
            prompt.look();
        }
    }

    pub(super) fn find_processes(&self) {
        let mut processes = locked(&self.processes);
        let draft = self.settings.draft.is_some().then_some(Role::Draft);
        for role in [Some(Role::Target), draft].into_iter().flatten() {
            processes.entry(role).or_insert_with(|| self.process(role));
        }
    }

    pub(super) fn process(&self, role: Role) -> Option<Process> {
        Process::of(self.name(role), std::process::id(), Path::new("/proc"))
    }

    pub(super) fn name(&self, role: Role) -> &str {
        match role {
            Role::Target => &self.settings.target,
            Role::Draft => self.settings.draft.as_deref().unwrap_or_default(),
        }
    }

    pub(super) fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }
}
