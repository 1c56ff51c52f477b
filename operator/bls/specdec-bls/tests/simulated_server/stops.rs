//! Requests that stop other requests by their id.

use crate::engine::Place;
use crate::model::Model;
use crate::triton::*;
use crate::{max_tokens, text};

/// An engine that streams a target-only call until it is cancelled.
const PLACE: Place = Place {
    memory: TRITONSERVER_MEMORY_CPU,
    in_library_buffer: true,
};

fn stop(set: bool) -> Input {
    Input {
        name: c"stop".into(),
        kind: TRITONSERVER_TYPE_BOOL,
        shape: vec![1, 1],
        data: vec![u8::from(set)],
        memory: TRITONSERVER_MEMORY_CPU,
    }
}

fn prompt() -> Vec<Input> {
    vec![text(TRITONSERVER_MEMORY_CPU), max_tokens()]
}

fn with_stop(set: bool) -> Vec<Input> {
    [prompt(), vec![stop(set)]].concat()
}

fn cancelled() -> Reply {
    let sentence = "the request was cancelled".to_owned();
    Some((TRITONSERVER_ERROR_CANCELLED, sentence))
}

#[test]
fn stop_without_an_id_is_refused() {
    let (code, sentence) = Model::load().reply(with_stop(true)).unwrap();
    assert_eq!(code, TRITONSERVER_ERROR_INVALID_ARG);
    assert!(
        sentence.starts_with("stop is true in a request without an id: send it with"),
        "{sentence}"
    );
}

#[test]
fn stop_of_an_unknown_request_is_answered_without_outputs() {
    let responses = Model::load().responses(vec![(c"mine", with_stop(true))]);
    assert_eq!(responses, vec![vec![None]]);
}

#[test]
fn stop_that_is_false_is_an_ordinary_request() {
    let model = Model::load_with(Some(PLACE), true);
    let answered = model.answer(with_stop(false), TRITONSERVER_MEMORY_CPU);
    assert_eq!(answered.0, vec![]);
    assert!(!answered.1.is_empty());
}

#[test]
fn stop_ends_running_and_waiting_requests_with_its_id() {
    // More requests than the 16 slots, so that some wait. The threads and their queue have room for
    // ten of them: if that is full, Triton's thread waits before it reads the stop. No match is
    // that long, so each running request has a streamed call, which ends only when it is cancelled.
    let mut requests: Vec<_> = (0..22).map(|_| (c"mine", with_stop(false))).collect();
    requests.push((c"mine", with_stop(true)));
    let mut responses = Model::with_lookups(PLACE, 50).responses(requests);
    assert_eq!(responses.pop(), Some(vec![None]));
    for replies in responses {
        assert_eq!(replies.last(), Some(&cancelled()));
    }
}
