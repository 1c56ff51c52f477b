//! What one prompt asks for, and the engine inputs that follow from it.

use triton::{DataType, Tensor};

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// What only the target takes and every call may repeat. Not so a grammar, which begins anew with
/// every call, nor logits and figures of a whole call.
const PER_TOKEN: [&str; 5] = [
    "lora_task_id",
    "lora_weights",
    "lora_config",
    "prompt_embedding_table",
    "prompt_vocab_size",
];

/// One prompt and how it is to be continued.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// Token ids.
    pub prompt: Vec<i32>,
    /// New tokens at most.
    pub max_tokens: usize,
    /// Draft tokens a round; 0 takes the plain path.
    pub draft_tokens: usize,
    /// The server's policy may choose another length than that.
    pub adaptive: bool,
    /// The user's own minimum.
    pub min_tokens: usize,
    /// The token that ends an answer, -1 for none.
    pub end_id: i32,
    /// Token ids of each stop word; the answer ends with the first one in it.
    pub stop_words: Vec<Vec<i32>>,
    /// The same words as text, for those that do not lie on token borders.
    pub stop_texts: Vec<String>,
    /// Acceptance by logits.
    pub use_draft_logits: bool,
    /// An answer in parts.
    pub stream: bool,
    /// The text of a whole answer leaves the prompt out.
    pub exclude_input: bool,
    /// Log probabilities are wanted.
    pub log_probs: bool,
    /// Figures of acceptance are wanted.
    pub statistics: bool,
    /// Every response says how many tokens the prompt has.
    pub input_count: bool,
    /// Every response says how many tokens it has itself.
    pub output_count: bool,
    /// Inputs of every call to either engine: sampling, end, words, bias.
    pub common: Vec<Tensor>,
    /// Of a sampled answer; every call gets one of its own that follows from it. None where
    /// nothing is drawn.
    pub seed: Option<u64>,
    /// How this release spells it.
    pub seed_name: &'static str,
    /// Inputs that only the plain path carries on to the target.
    pub plain: Vec<Tensor>,
    /// Further outputs of the target that the plain path hands on.
    pub outputs: Vec<String>,
    /// How this release spells the minimum length.
    pub min_name: &'static str,
    /// The engine's limit of prompt and answer together, 0 where nobody knows it.
    pub max_seq_len: usize,
}

impl Task {
    /// Whether what is asked of the target alone has no meaning over several engine calls.
    pub fn undivided(&self) -> bool {
        self.plain
            .iter()
            .any(|one| !PER_TOKEN.contains(&one.name.as_ref()))
    }

    /// Whether the answer depends on how it falls into rounds: then nothing but its own numbers may
    /// decide that.
    pub fn drawn(&self) -> bool {
        self.seed.is_some() || self.use_draft_logits
    }

    /// Inputs of one engine call behind `ids`, the whole prefix.
    ///
    /// With `apart`, other numbers are drawn than by a call that continues the same prefix.
    pub fn inputs(
        &self,
        ids: &[i32],
        new_tokens: usize,
        min_tokens: usize,
        apart: bool,
    ) -> Vec<Tensor> {
        let mut tensors = self.common.clone();
        if let Some(seed) = self.seed {
            let drawn = call_seed(seed, (ids.len() - self.prompt.len()) as u64, apart);
            let data = drawn.to_le_bytes().to_vec();
            tensors.push(Tensor::new(self.seed_name, DataType::Uint64, &[1, 1], data));
        }
        tensors.push(Tensor::int32("input_ids", &[1, ids.len() as i64], ids));
        tensors.push(Tensor::scalar("input_lengths", ids.len() as i32));
        tensors.push(Tensor::scalar("request_output_len", new_tokens as i32));
        if min_tokens > 0 {
            tensors.push(Tensor::scalar(self.min_name, min_tokens as i32));
        }
        tensors
    }
}

/// Seed of one engine call, so that no two calls of an answer draw the same numbers.
///
/// TensorRT-LLM begins its numbers anew with every request, the rounds' too. The first call keeps
/// the user's seed; the others are splitmix64 (Steele et al. 2014) of it and their place:
/// `generated` tokens before it, and whether it is the draft's call of a round in which the
/// target draws as well.
pub fn call_seed(seed: u64, generated: u64, apart: bool) -> u64 {
    if generated == 0 && !apart {
        return seed;
    }
    let place = 2 * generated + u64::from(apart);
    let mut mixed = seed.wrapping_add(place.wrapping_mul(GOLDEN));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
