//! A streamed call of the target, which the library cancels when a lookup finds a match.

use std::sync::atomic::Ordering;

use crate::engine::{ENDED_STREAMS, Place, packed_text};
use crate::model::{Model, wait_until};
use crate::triton::*;
use crate::{max_tokens, text};

const PLACE: Place = Place {
    memory: TRITONSERVER_MEMORY_CPU,
    in_library_buffer: true,
};

#[test]
fn call_is_cancelled_whose_first_tokens_match() {
    let model = Model::with_lookups(PLACE, 1);
    let before = ENDED_STREAMS.load(Ordering::SeqCst);
    let inputs = vec![text(TRITONSERVER_MEMORY_CPU), max_tokens()];
    let answered = model.answer(inputs, TRITONSERVER_MEMORY_CPU);
    assert_eq!(answered, (vec![], vec![packed_text("ab", 4)]));
    // The engine has streamed the same token twice, and does not end the call by itself.
    wait_until("the call was not cancelled", || {
        ENDED_STREAMS.load(Ordering::SeqCst) == before + 1
    });
    drop(model);
}
