//! A task: one prompt and its options, from which the inputs of every engine call follow.

use std::collections::BTreeSet;

use triton::{DataType, Tensor};

/// The increment of splitmix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Inputs of target-only calls that every call of a sequence may repeat. A grammar starts again
/// with each call, and logits and statistics cover one whole call, so their inputs are not listed.
const REPEATABLE: [&str; 5] = [
    "lora_task_id",
    "lora_weights",
    "lora_config",
    "prompt_embedding_table",
    "prompt_vocab_size",
];

/// Statistics of acceptance. A sequence counts those of its own rounds.
const ACCEPTANCE: [&str; 3] = [
    "acceptance_rate",
    "total_accepted_draft_tokens",
    "total_draft_tokens",
];

/// One prompt and how to continue it.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// Token ids.
    pub prompt: Vec<i32>,
    /// Most new tokens.
    pub max_tokens: usize,
    /// Draft tokens of a round; 0 for target-only decoding.
    pub draft_tokens: usize,
    /// The server's policy may choose another draft length.
    pub adaptive: bool,
    /// The client's minimum of new tokens.
    pub min_tokens: usize,
    /// The token that ends an answer, -1 for none.
    pub end_id: i32,
    /// Token ids of each stop word. The answer ends with the first stop word that occurs in it.
    pub stop_words: Vec<Vec<i32>>,
    /// The stop words as text, to detect those that begin or end inside a token.
    pub stop_texts: Vec<String>,
    /// The scope whose texts lookups search, and which learns this text; None for no scope.
    pub lookup_scope: Option<String>,
    /// The target compares the draft's logits to accept a token.
    pub use_draft_logits: bool,
    /// The answer is sent in parts.
    pub stream: bool,
    /// The text of a whole answer omits the prompt.
    pub exclude_input: bool,
    /// Responses carry log probabilities.
    pub log_probs: bool,
    /// Responses carry statistics of acceptance.
    pub statistics: bool,
    /// Responses carry the number of the prompt's tokens.
    pub input_count: bool,
    /// Responses carry the number of their own tokens.
    pub output_count: bool,
    /// Inputs of every call of either engine: sampling values, end token, word lists and bias.
    pub common: Vec<Tensor>,
    /// Seed of a sampled answer, from which each call derives its own; None for a greedy one.
    pub seed: Option<u64>,
    /// The engines' input for the seed in this release.
    pub seed_name: &'static str,
    /// Additional inputs of target-only calls, and of verifications if `target_only_outputs` is not
    /// empty.
    pub target_only_inputs: Vec<Tensor>,
    /// Additional outputs of target-only calls, which responses carry. With rounds, they are only
    /// statistics, and verifications request them as well.
    pub target_only_outputs: Vec<String>,
    /// The engines' input for the minimum of new tokens in this release.
    pub min_tokens_name: &'static str,
    /// Most tokens of prompt and answer together, 0 where unknown.
    pub max_seq_len: usize,
    /// Most draft tokens of a round that a request may set. The target's engine accepts at least as
    /// many.
    pub max_draft_tokens: usize,
}

impl Task {
    /// Keep only those additional outputs of the target that the client requested.
    ///
    /// If responses carry statistics, the statistics of acceptance are an exception. With rounds,
    /// the BLS counts them, so the target's are dropped. Without rounds, the target's are kept even
    /// if the client requested none: the engine may do its own drafting, and the BLS computes the
    /// statistics of the answer from the engine's counts.
    pub fn limit_outputs(&mut self, requested: &BTreeSet<String>) {
        let own_rounds = self.draft_tokens > 0;
        self.target_only_outputs
            .retain(|name| match ACCEPTANCE.contains(&name.as_str()) {
                true if self.statistics => !own_rounds,
                _ => requested.contains(name),
            });
    }

    /// Whether a target-only input requires that one call decodes the whole answer.
    pub fn needs_one_call(&self) -> bool {
        self.target_only_inputs
            .iter()
            .any(|input| !REPEATABLE.contains(&input.name.as_ref()))
    }

    /// Whether tokens are sampled. A sampled answer depends on how it is divided into rounds. So,
    /// with a fixed draft length, only the task may decide the division. Load and timing must not
    /// change it.
    pub fn is_sampled(&self) -> bool {
        self.seed.is_some() || self.use_draft_logits
    }

    /// Inputs of one engine call that continues `ids`, the whole prefix.
    ///
    /// With `distinct`, the call draws other random numbers than without it, even for the same
    /// prefix.
    pub fn inputs(
        &self,
        ids: &[i32],
        new_tokens: usize,
        min_tokens: usize,
        distinct: bool,
    ) -> Vec<Tensor> {
        let mut tensors = self.common.clone();
        if let Some(seed) = self.seed {
            let generated = ids.len().saturating_sub(self.prompt.len()) as u64;
            let data = call_seed(seed, generated, distinct).to_le_bytes().to_vec();
            tensors.push(Tensor::new(self.seed_name, DataType::Uint64, &[1, 1], data));
        }
        tensors.push(Tensor::int32("input_ids", &[1, ids.len() as i64], ids));
        tensors.push(Tensor::scalar("input_lengths", ids.len() as i32));
        tensors.push(Tensor::scalar("request_output_len", new_tokens as i32));
        if min_tokens > 0 {
            tensors.push(Tensor::scalar(self.min_tokens_name, min_tokens as i32));
        }
        tensors
    }
}

/// Seed of one engine call, so that no two rounds of an answer draw the same random numbers.
///
/// TensorRT-LLM restarts its random numbers with every call. Calls at the start of the answer have
/// the client's seed. Later calls have splitmix64 (Steele et al. 2014) of that seed and the number
/// of tokens `generated` before the call. The draft call and the verification of one round
/// therefore share a seed, unless the draft call sets `distinct`, which changes its seed. It does
/// so if the target compares the draft's logits, because acceptance then needs other random
/// numbers than the draft. A draft call that extends a proposal sets `distinct` as well, because a
/// later verification may have the same prefix.
pub fn call_seed(seed: u64, generated: u64, distinct: bool) -> u64 {
    if generated == 0 && !distinct {
        return seed;
    }
    let position = 2 * generated + u64::from(distinct);
    let mut mixed = seed.wrapping_add(position.wrapping_mul(GOLDEN));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
