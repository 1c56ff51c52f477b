//! The BLS's own metrics, on Triton's metrics port beside the server's.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use triton::{Error, Level, Metric, MetricFamily, log};

use super::sources::Sources;
use crate::lock::locked;
use crate::sequence::Counts;

/// Least time between two log lines about a failed draft call. If the draft is down, a call of
/// every sequence fails. `specdec_fallback_total` also counts the failures that are not logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The counter `specdec_fallback_total` for each reason.
struct Fallbacks {
    family: MetricFamily,
    by_reason: HashMap<String, Metric>,
    logged: Option<Instant>,
}

/// Counters of the tokens accepted at each position of a proposal, under our name and vLLM's.
struct Positions {
    ours: MetricFamily,
    vllm: MetricFamily,
    by_position: Vec<[Metric; 2]>,
}

/// The counters under the names of vLLM, which dashboards for speculative decoding read.
struct VllmCounters {
    rounds: Metric,
    drafted: Metric,
    accepted: Metric,
}

/// Counts of this server; safe to use from every thread.
pub struct Metrics {
    model: String,
    version: String,
    drafted: Metric,
    accepted: Metric,
    rounds: Metric,
    pipelined_rounds: Metric,
    generated: Metric,
    in_flight: Metric,
    running: Metric,
    waiting: Metric,
    length: Metric,
    memory_bytes: Metric,
    fallbacks: Mutex<Fallbacks>,
    positions: Mutex<Positions>,
    sources: Sources,
    vllm: VllmCounters,
}

impl Metrics {
    /// Metrics labelled with the model's name and version; `draft_length` is the server's default.
    pub fn new(model: &str, version: u64, draft_length: usize) -> Result<Self, Error> {
        let version = version.to_string();
        let labels = [("model", model), ("version", version.as_str())];
        let counter = |name, text| MetricFamily::counter(name, text)?.metric(&labels);
        let gauge = |name, text| MetricFamily::gauge(name, text)?.metric(&labels);
        let metrics = Self {
            drafted: counter(
                "specdec_draft_tokens_total",
                "Draft tokens that the target verified",
            )?,
            accepted: counter(
                "specdec_accepted_tokens_total",
                "Draft tokens that the target accepted",
            )?,
            rounds: counter(
                "specdec_rounds_total",
                "Rounds: verification steps, including those whose proposal is empty",
            )?,
            pipelined_rounds: counter(
                "specdec_early_rounds_total",
                "Rounds whose proposal came from pipelined drafting",
            )?,
            generated: counter(
                "specdec_generated_tokens_total",
                "Generated tokens, with or without speculation",
            )?,
            in_flight: gauge(
                "specdec_requests_in_flight",
                "Prompts being decoded, and requests waiting or being encoded",
            )?,
            running: gauge("specdec_requests_running", "Prompts that are being decoded")?,
            waiting: gauge(
                "specdec_requests_waiting",
                "Prompts that wait for others to end, and requests that are being encoded",
            )?,
            length: gauge(
                "specdec_draft_length",
                "The default draft length, or the last choice of the adaptive policy",
            )?,
            memory_bytes: gauge(
                "specdec_lookup_memory_bytes",
                "Size of the memory of lookups, with its index",
            )?,
            fallbacks: Mutex::new(Fallbacks {
                family: MetricFamily::counter(
                    "specdec_fallback_total",
                    "Requests decoded target-only, and prompts whose draft call failed",
                )?,
                by_reason: HashMap::new(),
                logged: None,
            }),
            positions: Mutex::new(Positions::new()?),
            sources: Sources::new(model, &version)?,
            vllm: VllmCounters::new(model)?,
            model: model.to_owned(),
            version,
        };
        metrics.draft_length(draft_length);
        Ok(metrics)
    }

    /// Count sequences and waiting requests that started (positive) or ended (negative).
    pub fn in_flight(&self, change: i32) {
        self.in_flight.increment(f64::from(change));
    }

    /// Count sequences that began to be decoded (positive) or ended (negative).
    pub fn running(&self, change: i32) {
        self.running.increment(f64::from(change));
    }

    /// Count prompts that began to wait (positive), and prompts that wait no more (negative).
    pub fn waiting(&self, change: i32) {
        self.waiting.increment(f64::from(change));
    }

    /// Publish the draft length that the adaptive policy settled on.
    pub fn draft_length(&self, length: usize) {
        self.length.set(length as f64);
    }

    /// Publish the size of the memory of lookups.
    pub fn memory_bytes(&self, bytes: usize) {
        self.memory_bytes.set(bytes as f64);
    }

    /// Count a request that is decoded target-only, or a prompt that continues without the draft
    /// model.
    pub fn fallback(&self, reason: &str) {
        let mut fallbacks = locked(&self.fallbacks);
        let Fallbacks {
            family, by_reason, ..
        } = &mut *fallbacks;
        if let Some(metric) = by_reason.get(reason) {
            return metric.increment(1.0);
        }
        let labels = [
            ("model", self.model.as_str()),
            ("version", self.version.as_str()),
            ("reason", reason),
        ];
        match family.metric(&labels) {
            Ok(metric) => {
                metric.increment(1.0);
                by_reason.insert(reason.to_owned(), metric);
            }
            Err(error) => log(Level::Error, &error.message),
        }
    }

    /// Add what a call returned to a sequence.
    pub fn count(&self, counts: &Counts) {
        for (metric, count) in [
            (&self.drafted, counts.drafted),
            (&self.accepted, counts.accepted),
            (&self.rounds, counts.rounds),
            (&self.pipelined_rounds, counts.pipelined_rounds),
            (&self.generated, counts.generated),
        ] {
            if count > 0 {
                metric.increment(count as f64);
            }
        }
        self.sources.count(counts);
        if counts.rounds > 0 {
            self.vllm.count(counts);
        }
        if let Err(error) = self.count_positions(counts.accepted) {
            log(Level::Error, &error.message);
        }
    }

    /// Count one accepted token at each of the first positions.
    fn count_positions(&self, accepted: usize) -> Result<(), Error> {
        let positions = &mut *locked(&self.positions);
        while positions.by_position.len() < accepted {
            let position = positions.by_position.len().to_string();
            let position = ("position", position.as_str());
            let ours = [
                ("model", self.model.as_str()),
                ("version", self.version.as_str()),
                position,
            ];
            let [model, engine] = vllm_labels(&self.model);
            let metrics = [
                positions.ours.metric(&ours)?,
                positions.vllm.metric(&[model, engine, position])?,
            ];
            positions.by_position.push(metrics);
        }
        let accepted = positions.by_position.iter().take(accepted);
        accepted.flatten().for_each(|metric| metric.increment(1.0));
        Ok(())
    }

    /// Count and log that a sequence continues without the draft, which failed with this message.
    pub fn draft_failed(&self, message: &str) {
        self.fallback("draft_error");
        let logged = &mut locked(&self.fallbacks).logged;
        if logged.is_none_or(|at| at.elapsed() > LOG_INTERVAL) {
            *logged = Some(Instant::now());
            let line = format!("{message}: answers continue without the draft model");
            log(Level::Warn, &line);
        }
    }
}

impl Positions {
    fn new() -> Result<Self, Error> {
        Ok(Self {
            ours: MetricFamily::counter(
                "specdec_accepted_tokens_per_position_total",
                "Draft tokens that the target accepted, by their position in the proposal",
            )?,
            vllm: MetricFamily::counter(
                "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                "specdec_accepted_tokens_per_position_total under vLLM's name",
            )?,
            by_position: Vec::new(),
        })
    }
}

impl VllmCounters {
    fn new(model: &str) -> Result<Self, Error> {
        let counter = |name, ours| {
            let text = format!("{ours} under vLLM's name");
            MetricFamily::counter(name, &text)?.metric(&vllm_labels(model))
        };
        Ok(Self {
            rounds: counter("vllm:spec_decode_num_drafts_total", "specdec_rounds_total")?,
            drafted: counter(
                "vllm:spec_decode_num_draft_tokens_total",
                "specdec_draft_tokens_total",
            )?,
            accepted: counter(
                "vllm:spec_decode_num_accepted_tokens_total",
                "specdec_accepted_tokens_total",
            )?,
        })
    }

    fn count(&self, counts: &Counts) {
        self.rounds.increment(counts.rounds as f64);
        self.drafted.increment(counts.drafted as f64);
        self.accepted.increment(counts.accepted as f64);
    }
}

/// The labels of vLLM's metrics. A server has one engine.
fn vllm_labels(model: &str) -> [(&'static str, &str); 2] {
    [("model_name", model), ("engine", "0")]
}
