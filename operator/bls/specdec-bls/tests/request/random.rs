//! Any bytes become tasks or an error, and never a panic.

use triton::{DataType, Tensor, elements};
use triton_specdec::request::{Capabilities, parse};

use crate::client::{Letters, server};

const CASES: u64 = 20_000;
const NAMES: [&str; 34] = [
    "text_input",
    "max_tokens",
    "end_id",
    "pad_id",
    "top_k",
    "top_p",
    "temperature",
    "length_penalty",
    "repetition_penalty",
    "min_length",
    "min_tokens",
    "random_seed",
    "seed",
    "beam_width",
    "num_return_sequences",
    "num_draft_tokens",
    "stop_words",
    "bad_words",
    "embedding_bias_words",
    "embedding_bias_weights",
    "stream",
    "exclude_input_in_output",
    "return_log_probs",
    "return_context_logits",
    "return_generation_logits",
    "return_perf_metrics",
    "return_kv_cache_reuse_stats",
    "lora_task_id",
    "lora_weights",
    "lora_config",
    "prompt_embedding_table",
    "guided_decoding_guide",
    "image_url_input",
    "unheard_of",
];

/// splitmix64 (Steele et al. 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn odds(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

fn shape(numbers: &mut Numbers, rows: i64) -> Vec<i64> {
    let mut shape = vec![if numbers.odds(50) { rows + 1 } else { rows }];
    for _ in 0..numbers.below(3) {
        shape.push(numbers.below(4) as i64);
    }
    if numbers.odds(50) {
        let wild = [i64::MAX, i64::MIN, -1, 0, 1 << 40];
        let place = numbers.below(shape.len() as u64) as usize;
        shape[place] = wild[numbers.below(wild.len() as u64) as usize];
    }
    if numbers.odds(100) {
        shape.clear();
    }
    shape
}

fn bytes(numbers: &mut Numbers, count: usize) -> Vec<u8> {
    let small = numbers.odds(2);
    let mut byte = |place: usize| match small {
        // Little numbers of four bytes reach further into the parser than any other.
        true if place.is_multiple_of(4) => numbers.below(3) as u8,
        true => 0,
        false => numbers.next() as u8,
    };
    (0..count).map(&mut byte).collect()
}

fn data(numbers: &mut Numbers, kind: DataType, shape: &[i64]) -> Vec<u8> {
    let count = elements(shape).unwrap_or(3).min(64);
    let mut data = match kind.width() {
        Some(width) => bytes(numbers, count * width),
        None => {
            let mut data = Vec::new();
            for _ in 0..count {
                let length = numbers.below(5) as usize;
                data.extend_from_slice(&(length as u32).to_le_bytes());
                match numbers.odds(20) {
                    true => data.extend(bytes(numbers, length)),
                    false => data.extend((0..length).map(|_| b'a' + numbers.below(26) as u8)),
                }
            }
            data
        }
    };
    if numbers.odds(20) {
        data.truncate(numbers.below(data.len() as u64 + 1) as usize);
    }
    data
}

fn request(numbers: &mut Numbers) -> Vec<Tensor> {
    let rows = 1 + numbers.below(3) as i64;
    let mut given = Vec::new();
    for (place, name) in NAMES.into_iter().enumerate() {
        let needed = place < 2;
        if !needed && !numbers.odds(8) {
            continue;
        }
        let strings = name.ends_with("_words") || matches!(place, 0 | 31 | 32);
        let kind = match strings && !numbers.odds(30) {
            true => DataType::Bytes,
            false => DataType::from_number(1 + numbers.below(14) as i32).expect("a type"),
        };
        let shape = shape(numbers, rows);
        let data = data(numbers, kind, &shape);
        given.push(Tensor::new(name, kind, &shape, data));
    }
    if numbers.odds(100) {
        given.remove(0);
    }
    given
}

#[test]
fn no_request_panics() {
    let servers = [
        server(),
        Capabilities::default(),
        Capabilities {
            max_seq_len: 3,
            draft_tokens: 0,
            ..server()
        },
    ];
    let (mut served, mut refused) = (0, 0);
    for seed in 0..CASES {
        let given = request(&mut Numbers(seed));
        let server = &servers[(seed % servers.len() as u64) as usize];
        match parse(&given, server, &Letters) {
            Ok(parsed) => {
                served += 1;
                for task in &parsed.tasks {
                    assert!(!task.prompt.is_empty() && task.max_tokens >= 1);
                    assert!(task.draft_tokens <= server.max_draft_tokens);
                    for one in task.common.iter().chain(&task.target_only_inputs) {
                        assert_eq!(one.shape[0], 1);
                        let width = one.kind.width().unwrap_or(0);
                        assert!(width == 0 || one.data.len() == one.count() * width);
                        assert!(width > 0 || one.strings().len() == one.count());
                    }
                    task.inputs(&task.prompt, 1, task.min_tokens, false);
                }
            }
            Err(error) => {
                refused += 1;
                assert!(!error.message().is_empty() && !error.message().contains('\n'));
            }
        }
    }
    // Neither way may be the only one that was tried.
    assert!(
        served > CASES / 50 && refused > CASES / 50,
        "{served} served, {refused} refused"
    );
}
