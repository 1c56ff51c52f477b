//! Simulated engines, and sequences that run with them.

#![allow(dead_code)]

use triton_specdec::error::Error;
use triton_specdec::request::task::Task;
use triton_specdec::tokenizer::Tokenizer;

use self::engine::next;
use self::numbers::Numbers;
#[allow(unused_imports)]
pub use self::run::{Outcome, Pipelined, Run};

pub mod changing_policy;
pub mod engine;
#[path = "../simulation/numbers.rs"]
pub mod numbers;
mod owner;
mod run;

pub const VOCABULARY: i32 = 40;
pub const END: i32 = 0;
/// The input for the minimum of new tokens, up to release 0.19 and from 1.2 on.
pub const MIN_NAMES: [&str; 2] = ["min_length", "min_tokens"];

/// A tokenizer of one character per token.
pub struct Letters;

impl Tokenizer for Letters {
    fn encode(&self, text: &str) -> Result<Vec<i32>, Error> {
        Ok(text.chars().map(|item| item as i32 - '0' as i32).collect())
    }
    fn encode_word(&self, word: &str) -> Result<Vec<i32>, Error> {
        self.encode(word)
    }
    fn decode(&self, ids: &[i32]) -> String {
        let letter = |id: &i32| char::from_u32((*id + '0' as i32) as u32);
        ids.iter().filter_map(letter).collect()
    }
    fn end_id(&self) -> i32 {
        END
    }
    fn pad_id(&self) -> i32 {
        END
    }
    fn size(&self) -> usize {
        VOCABULARY as usize
    }
}

/// The text of the target alone, generated token by token, without any code of the BLS.
pub fn target_only_text(task: &Task, seed: u64) -> String {
    let mut ids = task.prompt.clone();
    let begin = ids.len();
    while ids.len() - begin < task.max_tokens {
        let token = next(seed, &ids, ids.len() - begin < task.min_tokens);
        if token == END {
            break;
        }
        ids.push(token);
        if task.stop_words.iter().any(|word| ids.ends_with(word)) {
            break;
        }
    }
    let text = Letters.decode(&ids[begin..]);
    let ends = task
        .stop_texts
        .iter()
        .filter_map(|word| Some(text.find(word)? + word.len()));
    text[..ends.min().unwrap_or(text.len())].to_owned()
}

/// A task with a prompt of three tokens and the end token `END`.
pub fn task(max_tokens: usize, draft_tokens: usize) -> Task {
    Task {
        prompt: vec![5, 6, 7],
        max_tokens,
        draft_tokens,
        end_id: END,
        exclude_input: true,
        min_tokens_name: MIN_NAMES[0],
        seed_name: "random_seed",
        ..Task::default()
    }
}

/// Up to `count` random stop words of one or two tokens.
pub fn stop_words(numbers: &mut Numbers, count: usize) -> Vec<Vec<i32>> {
    let mut word = |_| {
        let length = numbers.between(1, 2);
        let token = |_| numbers.between(1, VOCABULARY as usize - 1) as i32;
        (0..length).map(token).collect()
    };
    let stop_words: Vec<Vec<i32>> = (0..count).map(&mut word).collect();
    let kept = numbers.between(0, count);
    stop_words.into_iter().take(kept).collect()
}
