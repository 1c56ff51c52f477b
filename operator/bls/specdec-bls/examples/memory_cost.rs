//! Prints what the memory of lookups costs when it is full, as JSON: the microseconds to search it
//! and to learn a token, and the bytes in use.
//!
//! Its arguments are the megabytes of the memory and the number of scopes.

use std::time::Instant;

use triton_specdec::lookup::memory::Memory;

const SEARCHES: usize = 200_000;
const TEXT: usize = 1_000;
/// Few distinct tokens, so that each n-gram has many occurrences.
const VOCABULARY: u64 = 300;
const MOST: usize = 8;

fn main() {
    let number = |index| {
        let argument = std::env::args().nth(index);
        argument.and_then(|text| text.parse::<usize>().ok())
    };
    let (megabytes, scopes) = (number(1).unwrap_or(64), number(2).unwrap_or(1));
    let memory = Memory::new(megabytes << 20);
    let mut state = 1_u64;
    let mut text = || -> Vec<i32> {
        let token = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let uniform = (state >> 33) as f64 / (1_u64 << 31) as f64;
            // Some tokens are far more frequent than others, as in language.
            (uniform.powi(3) * VOCABULARY as f64) as i32
        };
        (0..TEXT).map(token).collect()
    };
    let name = |index: usize| format!("tenant {}", index % scopes);
    let texts = (megabytes << 20) / (12 * TEXT) + 1;
    let started = Instant::now();
    for index in 0..texts {
        memory.learn(&name(index), &text());
    }
    let learned = started.elapsed().as_secs_f64() * 1e6 / (texts * TEXT) as f64;
    let query = text();
    let mut candidates = 0;
    let mut times: Vec<f64> = (0..SEARCHES)
        .map(|index| {
            let end = 8 + index % (TEXT - 8);
            let scope = name(index);
            let started = Instant::now();
            let candidate = memory.candidate(&scope, query.get(..end).unwrap_or(&query), 2, MOST);
            candidates += usize::from(candidate.is_some());
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let quantile = |part: f64| times.get((part * SEARCHES as f64) as usize);
    println!(
        "{}",
        serde_json::json!({
            "search_p50": quantile(0.5), "search_p99": quantile(0.99), "search_max": times.last(),
            "token_learned": learned, "candidates": candidates, "bytes": memory.bytes(),
        })
    );
}
