//! Prints what lookups cost in given texts, as JSON: the microseconds to learn a token and to
//! propose a candidate, and the bytes of the automaton for each token.
//!
//! `tests/support/bls.py` runs this program for the benchmarks. Its argument is a file with the
//! texts: a JSON list of lists of token ids.

use std::fs::read_to_string;
use std::time::Instant;

use triton_specdec::lookup::Lookup;

/// Most tokens of a candidate.
const MOST: usize = 8;

fn main() {
    let file = std::env::args().nth(1).expect("a file with texts");
    let input = read_to_string(file).expect("a file that can be read");
    let texts: Vec<Vec<i32>> = serde_json::from_str(&input).expect("lists of token ids");
    let figures: Vec<_> = texts.iter().map(|text| figures(text)).collect();
    println!("{}", serde_json::Value::from(figures));
}

fn figures(text: &[i32]) -> serde_json::Value {
    let mut lookup = Lookup::new(1);
    let mut candidates = 0;
    let microseconds: Vec<f64> = (1..=text.len())
        .map(|end| {
            let known = text.get(..end).unwrap_or_default();
            let started = Instant::now();
            lookup.extend(known);
            candidates += usize::from(lookup.candidate(known, MOST).is_some());
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    serde_json::json!({
        "microseconds": microseconds,
        "candidates": candidates,
        "bytes_a_token": lookup.bytes() as f64 / text.len() as f64,
    })
}
