//! A backend's own metrics, which Triton's metrics port serves beside the server's.

use std::ptr;
use std::sync::Arc;

use triton_sys as sys;

use crate::error::{Error, c_string, check, check_or_log};

/// Metrics of one name and kind.
#[derive(Clone)]
pub struct MetricFamily(Arc<Family>);

struct Family(*mut sys::TRITONSERVER_MetricFamily);

// SAFETY: Triton allows the use of a family from any thread.
unsafe impl Send for Family {}
// SAFETY: as above; Triton locks a family while it changes it.
unsafe impl Sync for Family {}

/// One metric of a family, with its labels.
pub struct Metric {
    metric: *mut sys::TRITONSERVER_Metric,
    /// A family must outlive its metrics.
    _family: MetricFamily,
}

// SAFETY: Triton allows the use of a metric from any thread.
unsafe impl Send for Metric {}
// SAFETY: as above; Triton changes the value atomically.
unsafe impl Sync for Metric {}

impl MetricFamily {
    /// A family of counters, which only grow.
    ///
    /// # Errors
    /// The server publishes no metrics, or has another family of this name.
    pub fn counter(name: &str, description: &str) -> Result<Self, Error> {
        Self::new(sys::TRITONSERVER_METRIC_KIND_COUNTER, name, description)
    }

    /// A family of gauges, which grow and shrink.
    ///
    /// # Errors
    /// As [`MetricFamily::counter`].
    pub fn gauge(name: &str, description: &str) -> Result<Self, Error> {
        Self::new(sys::TRITONSERVER_METRIC_KIND_GAUGE, name, description)
    }

    fn new(
        kind: sys::TRITONSERVER_MetricKind,
        name: &str,
        description: &str,
    ) -> Result<Self, Error> {
        let mut family = ptr::null_mut();
        let (name, description) = (c_string(name), c_string(description));
        // SAFETY: Triton copies name and description.
        unsafe {
            check(sys::TRITONSERVER_MetricFamilyNew(
                &mut family,
                kind,
                name.as_ptr(),
                description.as_ptr(),
            ))?;
        }
        Ok(Self(Arc::new(Family(family))))
    }

    /// A metric of this family. Each label is a name and a value.
    ///
    /// # Errors
    /// Triton refuses the labels.
    pub fn metric(&self, labels: &[(&str, &str)]) -> Result<Metric, Error> {
        let mut metric = ptr::null_mut();
        // SAFETY: Triton copies the labels, which are deleted after that.
        unsafe {
            let mut parameters: Vec<_> = labels
                .iter()
                .map(|(name, value)| new_label(name, value).cast_const())
                .collect();
            let made = check(sys::TRITONSERVER_MetricNew(
                &mut metric,
                self.0.0,
                parameters.as_mut_ptr(),
                parameters.len() as u64,
            ));
            for parameter in parameters {
                sys::TRITONSERVER_ParameterDelete(parameter.cast_mut());
            }
            made?;
        }
        Ok(Metric {
            metric,
            _family: self.clone(),
        })
    }
}

fn new_label(name: &str, value: &str) -> *mut sys::TRITONSERVER_Parameter {
    let (name, value) = (c_string(name), c_string(value));
    // SAFETY: Triton copies name and value.
    unsafe {
        sys::TRITONSERVER_ParameterNew(
            name.as_ptr(),
            sys::TRITONSERVER_PARAMETER_STRING,
            value.as_ptr().cast(),
        )
    }
}

impl Metric {
    /// Add to the value. A gauge also takes negative numbers.
    pub fn increment(&self, by: f64) {
        // SAFETY: the metric lives until it is dropped.
        unsafe { check_or_log(sys::TRITONSERVER_MetricIncrement(self.metric, by)) };
    }

    /// Set the value of a gauge.
    pub fn set(&self, value: f64) {
        // SAFETY: as above.
        unsafe { check_or_log(sys::TRITONSERVER_MetricSet(self.metric, value)) };
    }
}

impl Drop for Metric {
    fn drop(&mut self) {
        // SAFETY: nothing else has the pointer, and the family is still there.
        unsafe { check_or_log(sys::TRITONSERVER_MetricDelete(self.metric)) };
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        // SAFETY: each of its metrics held a reference to it, so none is left.
        unsafe { check_or_log(sys::TRITONSERVER_MetricFamilyDelete(self.0)) };
    }
}
