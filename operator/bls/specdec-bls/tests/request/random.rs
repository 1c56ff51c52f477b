//! Random requests, valid and invalid: each becomes tasks or an error, and none causes a panic.

use triton::{DataType, Tensor, element_count};
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

/// Fields that are text. The others are numbers or booleans.
const TEXT_FIELDS: [&str; 6] = [
    "text_input",
    "stop_words",
    "bad_words",
    "embedding_bias_words",
    "guided_decoding_guide",
    "image_url_input",
];

/// Random numbers of splitmix64 (Steele et al. 2014).
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

    /// True in one of `count` cases.
    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

fn shape(numbers: &mut Numbers, rows: i64) -> Vec<i64> {
    let mut shape = vec![if numbers.one_in(50) { rows + 1 } else { rows }];
    for _ in 0..numbers.below(3) {
        shape.push(numbers.below(4) as i64);
    }
    if numbers.one_in(50) {
        let wild = [i64::MAX, i64::MIN, -1, 0, 1 << 40];
        let dimension = numbers.below(shape.len() as u64) as usize;
        shape[dimension] = wild[numbers.below(wild.len() as u64) as usize];
    }
    if numbers.one_in(100) {
        shape.clear();
    }
    shape
}

fn bytes(numbers: &mut Numbers, count: usize) -> Vec<u8> {
    let small = numbers.one_in(2);
    let mut byte = |index: usize| match small {
        // Small integers of 32 bits are often valid, so the parser gets further with them.
        true if index.is_multiple_of(4) => numbers.below(3) as u8,
        true => 0,
        false => numbers.next() as u8,
    };
    (0..count).map(&mut byte).collect()
}

fn data(numbers: &mut Numbers, kind: DataType, shape: &[i64]) -> Vec<u8> {
    let count = element_count(shape).unwrap_or(3).min(64);
    let mut data = match kind.width() {
        Some(width) => bytes(numbers, count * width),
        None => {
            let mut data = Vec::new();
            for _ in 0..count {
                let length = numbers.below(5) as usize;
                data.extend_from_slice(&(length as u32).to_le_bytes());
                match numbers.one_in(20) {
                    true => data.extend(bytes(numbers, length)),
                    false => data.extend((0..length).map(|_| b'a' + numbers.below(26) as u8)),
                }
            }
            data
        }
    };
    if numbers.one_in(20) {
        data.truncate(numbers.below(data.len() as u64 + 1) as usize);
    }
    data
}

fn request(numbers: &mut Numbers) -> Vec<Tensor> {
    let rows = 1 + numbers.below(3) as i64;
    let mut given = Vec::new();
    for (index, name) in NAMES.into_iter().enumerate() {
        let needed = index < 2;
        if !needed && !numbers.one_in(8) {
            continue;
        }
        let kind = match TEXT_FIELDS.contains(&name) && !numbers.one_in(30) {
            true => DataType::Bytes,
            false => DataType::from_number(1 + numbers.below(14) as i32).expect("a type"),
        };
        let shape = shape(numbers, rows);
        let data = data(numbers, kind, &shape);
        given.push(Tensor::new(name, kind, &shape, data));
    }
    if numbers.one_in(100) {
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
                    for input in task.common.iter().chain(&task.target_only_inputs) {
                        assert_eq!(input.shape[0], 1);
                        let width = input.kind.width().unwrap_or(0);
                        assert!(width == 0 || input.data.len() == input.count() * width);
                        assert!(width > 0 || input.strings().len() == input.count());
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
    // Both outcomes must have occurred.
    assert!(
        served > CASES / 50 && refused > CASES / 50,
        "{served} served, {refused} refused"
    );
}
