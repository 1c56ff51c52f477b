//! The gauges of requests that wait and run, in a simulation of Triton's metrics.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::model::Model;
use crate::triton::*;
use crate::{max_tokens, text};

/// The sum of all changes of a metric, and the largest value that it had.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Value {
    pub now: f64,
    pub peak: f64,
}

/// The metrics of this process by the names of their families.
pub static VALUES: Mutex<BTreeMap<String, Value>> = Mutex::new(BTreeMap::new());

macro_rules! metric_functions {
    () => {
        unsafe fn TRITONSERVER_MetricFamilyNew(
            family: *mut *mut TRITONSERVER_MetricFamily,
            _: TRITONSERVER_MetricKind,
            name: *const c_char,
            _: *const c_char,
        ) -> *mut TRITONSERVER_Error {
            let name = unsafe { CStr::from_ptr(name) }.to_owned();
            unsafe { *family = Box::into_raw(Box::new(name)).cast() };
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_MetricFamilyDelete(
            family: *mut TRITONSERVER_MetricFamily,
        ) -> *mut TRITONSERVER_Error {
            drop(unsafe { Box::from_raw(family.cast::<CString>()) });
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_MetricNew(
            metric: *mut *mut TRITONSERVER_Metric,
            family: *mut TRITONSERVER_MetricFamily,
            _: *mut *const TRITONSERVER_Parameter,
            _: u64,
        ) -> *mut TRITONSERVER_Error {
            unsafe { *metric = family.cast() };
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_MetricIncrement(
            metric: *mut TRITONSERVER_Metric,
            by: f64,
        ) -> *mut TRITONSERVER_Error {
            let name = unsafe { &*metric.cast::<CString>() };
            let mut values = crate::gauges::VALUES.lock().unwrap();
            let value = values
                .entry(name.to_string_lossy().into_owned())
                .or_default();
            value.now += by;
            value.peak = value.peak.max(value.now);
            ptr::null_mut()
        }
    };
}

/// The gauges of prompts that wait and run.
fn gauges() -> [Value; 2] {
    let values = VALUES.lock().unwrap();
    ["waiting", "running"].map(|name| {
        let value = values.get(&format!("specdec_requests_{name}"));
        value.copied().unwrap_or_default()
    })
}

#[test]
fn every_prompt_waits_until_it_runs() {
    let model = Model::load();
    VALUES.lock().unwrap().clear();
    let mut prompts = text(TRITONSERVER_MEMORY_CPU);
    prompts.shape = vec![3, 1];
    prompts.data = prompts.data.repeat(3);
    let mut tokens = max_tokens();
    tokens.shape = vec![3, 1];
    tokens.data = tokens.data.repeat(3);
    let (code, _) = model.reply(vec![prompts, tokens]).unwrap();
    assert_eq!(code, TRITONSERVER_ERROR_UNAVAILABLE);
    let [waiting, running] = gauges();
    assert_eq!(
        waiting,
        Value {
            now: 0.0,
            peak: 3.0
        }
    );
    assert_eq!(
        running,
        Value {
            now: 0.0,
            peak: 1.0
        }
    );
}

#[test]
fn refused_and_cancelled_requests_are_counted_no_more() {
    let model = Model::load();
    for cancelled in [false, true] {
        VALUES.lock().unwrap().clear();
        let requests = (0..60).map(|number| match number % 3 {
            0 => vec![text(TRITONSERVER_MEMORY_CPU), max_tokens()],
            1 => vec![text(TRITONSERVER_MEMORY_GPU), max_tokens()],
            _ => vec![text(TRITONSERVER_MEMORY_CPU)],
        });
        model.replies(requests.collect(), cancelled);
        let [waiting, running] = gauges();
        assert_eq!((waiting.now, running.now), (0.0, 0.0), "{cancelled}");
        assert!(waiting.peak >= 1.0, "{cancelled}");
        assert_eq!(running.peak > 0.0, !cancelled);
    }
}
