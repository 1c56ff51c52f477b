//! Limits of a request's text, checked before any of it is tokenized.

use std::sync::atomic::{AtomicUsize, Ordering};

use triton::{DataType, Tensor, packed};
use triton_specdec::config::Capabilities;
use triton_specdec::error::Error;
use triton_specdec::request::limits::{Limits, is_long, tokenized_bytes};
use triton_specdec::request::parse;
use triton_specdec::tokenizer::Tokenizer;

/// Counts the bytes that it tokenizes. A token has at most eight bytes of text.
#[derive(Default)]
struct CountingTokenizer(AtomicUsize);

impl Tokenizer for CountingTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<i32>, Error> {
        self.0.fetch_add(text.len(), Ordering::Relaxed);
        Ok(vec![1])
    }
    fn encode_word(&self, word: &str) -> Result<Vec<i32>, Error> {
        self.encode(word)
    }
    fn decode(&self, _: &[i32]) -> String {
        String::new()
    }
    fn end_id(&self) -> i32 {
        -1
    }
    fn pad_id(&self) -> i32 {
        -1
    }
    fn size(&self) -> usize {
        2
    }
    fn bytes_per_token(&self) -> usize {
        8
    }
}

fn texts(name: &'static str, rows: i64, items: &[&[u8]]) -> Tensor {
    let shape = [rows, items.len() as i64 / rows];
    Tensor::new(name, DataType::Bytes, &shape, packed(items))
}

/// How many bytes of a request are tokenized, or its error. A sequence has at most 16 384 tokens.
fn outcome(mut given: Vec<Tensor>) -> Result<usize, String> {
    let rows = given[0].shape[0];
    let counts = vec![1; rows as usize];
    given.push(Tensor::int32("max_tokens", &[rows, 1], &counts));
    let server = Capabilities {
        max_seq_len: 16 * 1024,
        min_tokens_name: "min_tokens",
        ..Capabilities::default()
    };
    let tokenizer = CountingTokenizer::default();
    let parsed = parse(&given, &server, &tokenizer);
    let encoded = tokenizer.0.load(Ordering::Relaxed);
    match parsed {
        Ok(_) => Ok(encoded),
        Err(error) => {
            assert_eq!(encoded, 0, "{error}");
            Err(error.to_string())
        }
    }
}

#[test]
fn prompt_longer_than_the_longest_sequence_is_refused() {
    let most = 8 * 16 * 1024;
    let text = vec![b'a'; most + 1];
    assert_eq!(
        outcome(vec![texts("text_input", 1, &[&text[..most]])]),
        Ok(most)
    );
    let sentence = format!(
        "text_input has {} bytes, more than the limit of {most} for a prompt: send a shorter prompt",
        most + 1
    );
    assert_eq!(
        outcome(vec![texts("text_input", 1, &[&text])]),
        Err(sentence.clone())
    );
    // Every prompt of a request has the same limit, however short the others are.
    let rows: [&[u8]; 2] = [b"short", &text];
    assert_eq!(outcome(vec![texts("text_input", 2, &rows)]), Err(sentence));
    let rows: [&[u8]; 2] = [&text[..most], &text[..most]];
    assert_eq!(outcome(vec![texts("text_input", 2, &rows)]), Ok(2 * most));
}

#[test]
fn limit_of_a_prompt_has_a_minimum_and_a_default() {
    let refused =
        |limits: Limits, bytes: usize| limits.check_size("text_input", &[1, 1], bytes + 4).is_err();
    for (length, token, most) in [
        (512, 37, 64 << 10),
        (8192, 128, 1 << 20),
        (0, 128, 1 << 20),
        (8192, 0, 1 << 20),
        (usize::MAX, 2, usize::MAX - 5),
    ] {
        let limits = Limits::new(length, token);
        assert!(!refused(limits, most), "{length} {token}");
        assert!(
            most > 1 << 30 || refused(limits, most + 1),
            "{length} {token}"
        );
    }
}

#[test]
fn lists_of_many_items_are_refused() {
    let many: Vec<&[u8]> = vec![b"ab"; 1025];
    let large: Vec<&[u8]> = vec![&[b'a'; 8 << 10]; 9];
    for name in ["stop_words", "bad_words", "embedding_bias_words"] {
        let given = |items: &[&[u8]]| {
            let weights = vec![1.0; items.len()];
            vec![
                texts("text_input", 1, &[b"a"]),
                texts(name, 1, items),
                Tensor::fp32(
                    "embedding_bias_weights",
                    &[1, weights.len() as i64],
                    &weights,
                ),
            ]
        };
        let kept = |items| match name {
            "embedding_bias_words" => outcome(given(items)),
            _ => outcome(given(items)[..2].to_vec()),
        };
        assert_eq!(kept(&many[..1024]), Ok(1 + 2048));
        let sentence =
            format!("{name} has 1025 items, more than the limit of 1024 in a request: send fewer");
        assert_eq!(kept(&many), Err(sentence));
        assert_eq!(kept(&large[..8]), Ok(1 + (64 << 10)));
        let sentence = format!(
            "{name} has 73728 bytes, more than the limit of 65536 in a request: \
             send fewer or shorter items"
        );
        assert_eq!(kept(&large), Err(sentence));
    }
}

#[test]
fn only_tokenized_text_makes_a_request_long() {
    assert!(!is_long(tokenized_bytes("text_input", 32 << 10)));
    assert!(is_long(tokenized_bytes("text_input", (32 << 10) + 1)));
    assert!(is_long(tokenized_bytes("stop_words", 40_000)));
    assert_eq!(tokenized_bytes("prompt_embedding_table", 1 << 30), 0);
}
