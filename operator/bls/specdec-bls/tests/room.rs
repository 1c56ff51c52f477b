//! Answers that reach the limit of a sequence, from a target that reserves room for draft tokens
//! there, as the executor of TensorRT-LLM does.

use support::engine::{Room, integer, integers};
use support::numbers::Numbers;
use support::{Letters, Pipelined, Run, VOCABULARY, target_only_text};
use triton::Tensor;
use triton_specdec::request::task::Task;
use triton_specdec::request::{Capabilities, parse};
use triton_specdec::tokenizer::Tokenizer;

mod support;

const CASES: u32 = 1500;
/// Most tokens of prompt and answer, and most draft tokens of a round.
const LIMIT: usize = 48;
const DRAFTS: usize = 8;

/// A request whose prompt ends at most `2 * DRAFTS` tokens before the limit.
fn request(numbers: &mut Numbers) -> Task {
    let length = numbers.between(LIMIT - 2 * DRAFTS, LIMIT - 1);
    let token = |_| numbers.between(1, VOCABULARY as usize - 1) as i32;
    let prompt: Vec<i32> = (0..length).map(token).collect();
    let mut given = vec![
        Tensor::text("text_input", &[1, 1], &Letters.decode(&prompt)),
        Tensor::scalar("max_tokens", numbers.between(1, 3 * DRAFTS) as i32),
        Tensor::scalar("num_draft_tokens", numbers.between(0, DRAFTS) as i32),
    ];
    if numbers.between(0, 1) == 0 {
        given.push(Tensor::flag("stream"));
    }
    let server = Capabilities {
        draft_tokens: 4,
        max_draft_tokens: DRAFTS,
        max_seq_len: LIMIT,
        drafts: true,
        has_draft_model: true,
        streams: true,
        min_tokens_name: "min_length",
        ..Capabilities::default()
    };
    let mut parsed = parse(&given, &server, &Letters).expect("a request that can be served");
    Task {
        exclude_input: true,
        ..parsed.tasks.remove(0)
    }
}

/// Decodes `CASES` requests with a target that is built for `max_seq_len` tokens. Returns how many
/// answers differ from those of a target without limits, and how many of the latter reach `LIMIT`.
fn compare(max_seq_len: usize) -> (usize, usize) {
    let room = Room {
        max_seq_len,
        max_draft_len: DRAFTS,
    };
    let (mut differing, mut reached) = (0, 0);
    for seed in 0..CASES {
        let mut numbers = Numbers::new(seed);
        let task = request(&mut numbers);
        let other = numbers.between(0, 2) as u64;
        let mut run = Run::new(seed.into(), u64::from(seed) + other);
        run.target.room = Some(room);
        run.draft.as_mut().unwrap().room = Some(Room {
            max_seq_len: LIMIT,
            max_draft_len: 0,
        });
        run.pipelined = [Pipelined::Off, Pipelined::Early, Pipelined::Late][numbers.between(0, 2)];
        let outcome = run.finish(task.clone());
        let expected = target_only_text(&task, seed.into());
        differing += usize::from(outcome.text() != expected);
        reached += usize::from(task.prompt.len() + expected.len() == LIMIT);
    }
    (differing, reached)
}

#[test]
fn answers_reach_the_last_token_of_the_sequence() {
    let (differing, reached) = compare(LIMIT + DRAFTS);
    assert_eq!(differing, 0);
    assert!(reached > CASES as usize / 3, "{reached}");
}

#[test]
fn engine_without_room_for_its_drafts_shortens_answers() {
    // The operator never builds such an engine. If the simulated engine did not shorten answers,
    // the test above could not fail.
    let (differing, _) = compare(LIMIT);
    assert!(differing > CASES as usize / 3, "{differing}");
}

#[test]
fn no_call_asks_for_more_than_the_engine_has_room_for() {
    let mut padded = 0;
    for seed in 0..CASES {
        let mut numbers = Numbers::new(seed);
        let task = request(&mut numbers);
        let outcome = Run::new(seed.into(), u64::from(seed)).finish(task);
        for call in &outcome.target.calls {
            let prefix = integers(call, "input_ids").len();
            let drafts = integers(call, "draft_input_ids").len();
            let tokens = integer(call, "request_output_len").unwrap() as usize;
            assert!(prefix + tokens <= LIMIT);
            // A batch may pad the proposal to `longest` tokens. The call then requests one token
            // more than that, and the engine reserves room for `longest` draft tokens after them.
            let longest = call.draft_tokens.max(drafts);
            assert!(prefix + 2 * longest < LIMIT + DRAFTS);
            padded += usize::from(longest > drafts);
        }
    }
    assert!(padded > 0);
}
