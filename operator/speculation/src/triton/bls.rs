//! The model `tensorrt_llm_bls`: everything that its requests share.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::error::log;
use super::ffi::{self, Code};
use super::infer::{Flight, Server, model_name};
use super::keeper::Keeper;
use super::metrics::Metrics;
use super::process::Process;
use super::prompt::Prompt;
use super::reply::Reply;
use super::request::ClientRequest;
use super::row::{Row, Trip};
use crate::answer::{Answer, Means};
use crate::config::Settings;
use crate::engine::{Answered, EngineError, Role, find};
use crate::gather::Gather;
use crate::policy::{AdaptiveLength, FixedLength, Lengths};
use crate::request::parse;
use crate::response::wanted;
use crate::rows::{ROW, merged};
use crate::task::Task;
use crate::tokenizer::Tokenizer;

/// The model and what it does at the moment.
pub struct Bls {
    settings: Settings,
    server: Server,
    tokenizer: Arc<dyn Tokenizer>,
    metrics: Arc<Metrics>,
    policy: Option<AdaptiveLength>,
    gather: Mutex<Gather<Row>>,
    ahead: AtomicUsize,
    number: AtomicU64,
    places: Places,
    prompts: Mutex<HashMap<u64, Arc<Prompt>>>,
    trips: Mutex<HashMap<u64, Arc<Trip>>>,
    processes: Mutex<HashMap<Role, Option<Process>>>,
    keeper: Keeper,
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bls {
    /// A model that is ready for requests.
    pub fn new(
        settings: Settings,
        server: Server,
        tokenizer: Arc<dyn Tokenizer>,
        metrics: Metrics,
    ) -> Arc<Self> {
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
            tokenizer,
            metrics,
            policy,
            gather: Mutex::new(Gather::new(rows, Instant::now())),
            ahead: AtomicUsize::new(settings.draft_ahead),
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
        bls.keeper.start(&bls);
        bls
    }

    pub(super) fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// End the thread; nothing is in flight when a model goes.
    pub fn close(&self) {
        self.keeper.close();
    }

    /// Start a request and return: its answers leave from the engines' threads. Waits while there
    /// is no place for its prompts, and later requests wait in Triton's queue.
    pub fn accept(self: &Arc<Self>, request: ClientRequest) {
        let parsed = request
            .tensors()
            .map_err(|words| (Code::Internal, words))
            .and_then(|given| {
                parse(&given, &self.settings.server, self.tokenizer.as_ref())
                    .map_err(|error| (Code::InvalidArg, error.to_string()))
            });
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err((code, words)) => {
                if let Err(words) = request.refuse(code, &words, true) {
                    log(ffi::LOG_ERROR, &words);
                }
                return request.release(false);
            }
        };
        if !parsed.fallback.is_empty() {
            self.metrics.fallback(parsed.fallback);
        }
        self.find_processes();
        let reply = Arc::new(self.reply(request, parsed.tasks.len()));
        for (row, task) in parsed.tasks.into_iter().enumerate() {
            self.places.take();
            self.metrics.in_flight(1);
            self.begin(row, Arc::new(task), &reply);
        }
    }

    fn reply(&self, request: ClientRequest, rows: usize) -> Reply {
        let requested = request.requested().unwrap_or_default();
        let requested = requested.iter().map(String::as_str);
        let outputs = wanted(&self.settings.declared, requested);
        if self.settings.decoupled {
            Reply::stream(request, rows, outputs, self.settings.accumulate_tokens)
        } else {
            Reply::whole(request, rows, outputs)
        }
    }

    fn begin(self: &Arc<Self>, row: usize, task: Arc<Task>, reply: &Arc<Reply>) {
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

    /// Whether the draft may work ahead for one more answer.
    pub fn take_ahead(&self) -> bool {
        self.ahead
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| {
                free.checked_sub(1)
            })
            .is_ok()
    }

    /// A row of the call `answered` has gone on, with its next call if it has one; whatever is
    /// complete by that goes to the engines.
    pub fn gathered(self: &Arc<Self>, answered: Option<u64>, row: Option<Row>) {
        let now = Instant::now();
        let mut gather = locked(&self.gather);
        if let Some(row) = row {
            gather.submit(row.call.role, row, now);
        }
        if let Some(number) = answered {
            gather.answered(number, now);
        }
        let batches = gather.ready(now);
        let due = gather.due();
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
            [row] => (
                std::mem::take(&mut row.call.inputs),
                std::mem::take(&mut row.call.outputs),
            ),
            _ => merged(&rows.iter().map(|row| &row.call).collect::<Vec<_>>()),
        };
        let lasting = rows.first().filter(|row| !row.call.round);
        let lasting = lasting.map(|row| Arc::clone(&row.prompt));
        let trip = Arc::new(Trip::new(role, batch, rows));
        let number = self.next_number();
        locked(&self.trips).insert(number, Arc::clone(&trip));
        let (bls, heard) = (Arc::clone(self), Arc::clone(&trip));
        let listener = Box::new(move |answered: Option<Answered>, last: bool| {
            bls.heard(&heard, number, answered, last);
        });
        let name = model_name(self.name(role));
        match Flight::start(&self.server, &name, inputs, &outputs, listener) {
            Ok(flight) => {
                if let Some(prompt) = lasting {
                    prompt.flies(Some(flight));
                }
            }
            // Told later: whoever wanted the call is not done with wanting it.
            Err(words) => self.keeper.defer(number, EngineError::new(words)),
        }
    }

    /// An engine said something about a call.
    fn heard(self: &Arc<Self>, trip: &Trip, number: u64, answered: Option<Answered>, last: bool) {
        match answered {
            Some(Ok(tensors)) if !tensors.is_empty() => {
                let index = find(&tensors, ROW).filter(|_| trip.shared);
                let place = index.and_then(|one| one.integers().first().copied());
                if let Some(row) = trip.take(place.unwrap_or(0).max(0) as usize) {
                    self.deliver(trip, row, Ok(tensors));
                }
            }
            Some(Err(error)) if trip.shared => trip.refuse(error),
            Some(Err(error)) => self.fail(trip, error),
            _ => {}
        }
        if last {
            locked(&self.trips).remove(&number);
            let rest = trip.rest();
            if trip.was_refused() {
                // One of them may have been at fault: the others go on.
                for row in rest {
                    self.issue(trip.role, trip.batch, vec![row]);
                }
            } else if !rest.is_empty() {
                let name = self.name(trip.role);
                let words = format!("{name} ended the call without an answer: it was cancelled");
                for row in rest {
                    self.deliver(trip, row, Err(EngineError::new(words.clone())));
                }
            }
        }
    }

    /// What could not be told when it happened.
    pub fn failed(self: &Arc<Self>, number: u64, error: EngineError) {
        let trip = locked(&self.trips).remove(&number);
        if let Some(trip) = trip {
            self.fail(&trip, error);
        }
    }

    /// Every row that is left of a call gets this error.
    fn fail(self: &Arc<Self>, trip: &Trip, error: EngineError) {
        let words = self.named(trip.role, &error.words);
        for row in trip.rest() {
            let error = EngineError {
                words: words.clone(),
                gone: error.gone,
            };
            self.deliver(trip, row, Err(error));
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
                .values()
                .filter(|trip| trip.role == role)
                .cloned()
                .collect();
            for trip in trips {
                self.fail(&trip, EngineError::gone(self.name(role)));
            }
            // Some releases of Triton start another one in its place.
            if let Some(found) = self.process(role) {
                locked(&self.processes).insert(role, Some(found));
            }
        }
    }

    fn find_processes(&self) {
        let mut processes = locked(&self.processes);
        let draft = self.settings.draft.is_some().then_some(Role::Draft);
        for role in [Some(Role::Target), draft].into_iter().flatten() {
            processes.entry(role).or_insert_with(|| self.process(role));
        }
    }

    fn process(&self, role: Role) -> Option<Process> {
        Process::of(self.name(role), std::process::id(), Path::new("/proc"))
    }

    fn name(&self, role: Role) -> &str {
        match role {
            Role::Target => &self.settings.target,
            Role::Draft => self.settings.draft.as_deref().unwrap_or_default(),
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

    fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }
}
