//! Counters of draft tokens by their source: the draft model, or lookups in the text itself or in
//! the memory.

use triton::{Error, Metric, MetricFamily};

use crate::sequence::Counts;

/// The counters of one source.
struct Source {
    rounds: Metric,
    drafted: Metric,
    accepted: Metric,
}

/// The counters of all sources.
pub struct Sources {
    model: Source,
    lookup: Source,
    memory: Source,
}

impl Sources {
    /// Counters labelled with the model's name and version.
    pub fn new(model: &str, version: &str) -> Result<Self, Error> {
        let families = [
            MetricFamily::counter(
                "specdec_rounds_by_source_total",
                "Rounds with a proposal, by its source: model, lookup or memory",
            )?,
            MetricFamily::counter(
                "specdec_draft_tokens_by_source_total",
                "Draft tokens that the target verified, by their source",
            )?,
            MetricFamily::counter(
                "specdec_accepted_tokens_by_source_total",
                "Draft tokens that the target accepted, by their source",
            )?,
        ];
        let source = |name| {
            let labels = [("model", model), ("version", version), ("source", name)];
            let [rounds, drafted, accepted] = &families;
            Ok::<Source, Error>(Source {
                rounds: rounds.metric(&labels)?,
                drafted: drafted.metric(&labels)?,
                accepted: accepted.metric(&labels)?,
            })
        };
        Ok(Self {
            model: source("model")?,
            lookup: source("lookup")?,
            memory: source("memory")?,
        })
    }

    /// Add the counts of a call.
    pub fn count(&self, counts: &Counts) {
        if counts.drafted == 0 {
            return;
        }
        let source = match (counts.lookup, counts.memory) {
            (true, true) => &self.memory,
            (true, false) => &self.lookup,
            (false, _) => &self.model,
        };
        source.rounds.increment(counts.rounds as f64);
        source.drafted.increment(counts.drafted as f64);
        source.accepted.increment(counts.accepted as f64);
    }
}
