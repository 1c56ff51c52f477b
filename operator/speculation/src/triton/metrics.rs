//! The BLS's own metrics, on Triton's metrics port beside the server's.

use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::error::{c_text, check, log, logged};
use super::ffi;
use crate::answer::Meter;
use crate::chunk::Chunk;
use crate::lock::locked;

/// A draft that is down fails every answer: the counter tells how many, the log that it happens.
const SAY: Duration = Duration::from_secs(60);

/// A family and its metrics; freed in that order's reverse.
struct Family {
    family: *mut ffi::MetricFamily,
    metrics: Vec<*mut ffi::Metric>,
}

// SAFETY: Triton's metrics may be used from any thread.
unsafe impl Send for Family {}
unsafe impl Sync for Family {}

impl Family {
    fn new(kind: c_int, name: &str, description: &str) -> Result<Self, String> {
        let mut family = ptr::null_mut();
        let (name, description) = (c_text(name), c_text(description));
        // SAFETY: name and description are copied.
        check(unsafe {
            ffi::TRITONSERVER_MetricFamilyNew(
                &mut family,
                kind,
                name.as_ptr(),
                description.as_ptr(),
            )
        })?;
        Ok(Self {
            family,
            metrics: Vec::new(),
        })
    }

    fn one(
        kind: c_int,
        name: &str,
        description: &str,
        labels: &[(CString, CString)],
    ) -> Result<Self, String> {
        let mut family = Self::new(kind, name, description)?;
        family.add(labels)?;
        Ok(family)
    }

    /// A metric with these labels; its place.
    fn add(&mut self, labels: &[(CString, CString)]) -> Result<usize, String> {
        let mut metric = ptr::null_mut();
        // SAFETY: labels are copied, and deleted after that.
        let result = check(unsafe {
            let made: Vec<*const ffi::Parameter> = labels
                .iter()
                .map(|(name, value)| {
                    ffi::TRITONSERVER_ParameterNew(
                        name.as_ptr(),
                        ffi::STRING_PARAMETER,
                        value.as_ptr().cast(),
                    )
                    .cast_const()
                })
                .collect();
            let count = made.len() as u64;
            let failed =
                ffi::TRITONSERVER_MetricNew(&mut metric, self.family, made.as_ptr(), count);
            for label in made {
                ffi::TRITONSERVER_ParameterDelete(label.cast_mut());
            }
            failed
        });
        result?;
        self.metrics.push(metric);
        Ok(self.metrics.len() - 1)
    }

    fn increment(&self, place: usize, value: f64) {
        // SAFETY: the metric lives as long as its family.
        logged(unsafe { ffi::TRITONSERVER_MetricIncrement(self.metrics[place], value) });
    }

    fn set(&self, value: f64) {
        // SAFETY: as above.
        logged(unsafe { ffi::TRITONSERVER_MetricSet(self.metrics[0], value) });
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        // SAFETY: nobody else has them; the family goes last.
        unsafe {
            for metric in self.metrics.drain(..) {
                logged(ffi::TRITONSERVER_MetricDelete(metric));
            }
            logged(ffi::TRITONSERVER_MetricFamilyDelete(self.family));
        }
    }
}

#[derive(Default)]
struct Fallbacks {
    places: HashMap<String, usize>,
    said: Option<Instant>,
}

/// Counts of this server; safe to use from every thread.
pub struct Metrics {
    labels: Vec<(CString, CString)>,
    drafted: Family,
    accepted: Family,
    rounds: Family,
    early: Family,
    generated: Family,
    in_flight: Family,
    length: Family,
    fallback: Mutex<(Family, Fallbacks)>,
}

impl Metrics {
    /// Metrics labelled with the model's name and version; `draft_length` is the server's default.
    pub fn new(model: &str, version: u64, draft_length: usize) -> Result<Self, String> {
        let labels = vec![
            (c_text("model"), c_text(model)),
            (c_text("version"), c_text(&version.to_string())),
        ];
        let counter = |name, text| Family::one(ffi::COUNTER, name, text, &labels);
        let gauge = |name, text| Family::one(ffi::GAUGE, name, text, &labels);
        let made = Self {
            drafted: counter(
                "specdec_draft_tokens_total",
                "Draft tokens offered to the target",
            )?,
            accepted: counter(
                "specdec_accepted_tokens_total",
                "Draft tokens the target accepted",
            )?,
            rounds: counter(
                "specdec_rounds_total",
                "Rounds: one draft call and one verification",
            )?,
            early: counter(
                "specdec_early_rounds_total",
                "Rounds whose draft tokens were there before they began",
            )?,
            generated: counter(
                "specdec_generated_tokens_total",
                "Tokens of answers, speculative or not",
            )?,
            in_flight: gauge("specdec_requests_in_flight", "Prompts being answered")?,
            length: gauge(
                "specdec_draft_length",
                "Draft tokens a round proposes by default, or as the policy last chose",
            )?,
            fallback: Mutex::new((
                Family::new(
                    ffi::COUNTER,
                    "specdec_fallback_total",
                    "Answers that went on without speculation",
                )?,
                Fallbacks::default(),
            )),
            labels,
        };
        made.draft_length(draft_length);
        Ok(made)
    }

    /// Prompts that began (positive) or ended (negative).
    pub fn in_flight(&self, change: i32) {
        self.in_flight.increment(0, f64::from(change));
    }

    /// The adaptive policy settled on a length.
    pub fn draft_length(&self, length: usize) {
        self.length.set(length as f64);
    }

    /// An answer goes on without speculation.
    pub fn fallback(&self, reason: &str) {
        let mut guard = locked(&self.fallback);
        let (family, known) = &mut *guard;
        let place = match known.places.get(reason) {
            Some(place) => *place,
            None => {
                let mut labels = self.labels.clone();
                labels.push((c_text("reason"), c_text(reason)));
                match family.add(&labels) {
                    Ok(place) => {
                        known.places.insert(reason.to_owned(), place);
                        place
                    }
                    Err(words) => return log(ffi::LOG_ERROR, &words),
                }
            }
        };
        family.increment(place, 1.0);
    }
}

impl Meter for Metrics {
    fn chunk(&self, chunk: &Chunk) {
        for (family, count) in [
            (&self.drafted, chunk.drafted),
            (&self.accepted, chunk.accepted),
            (&self.rounds, chunk.rounds),
            (&self.early, usize::from(chunk.early)),
            (&self.generated, chunk.tokens.len()),
        ] {
            if count > 0 {
                family.increment(0, count as f64);
            }
        }
    }

    fn draft_failed(&self, words: &str) {
        self.fallback("draft_error");
        let mut guard = locked(&self.fallback);
        let said = &mut guard.1.said;
        if said.is_none_or(|at| at.elapsed() > SAY) {
            *said = Some(Instant::now());
            let words = format!("{words}: answers go on with the target alone");
            log(ffi::LOG_WARN, &words);
        }
    }
}
