//! Simulated engines of a deterministic language: the whole prefix determines the next token.

use triton::Tensor;
use triton_specdec::engine::{Call, EngineResult, Role, find};
use triton_specdec::error::Error;

use super::{END, MIN_NAMES, VOCABULARY};

/// Returns the next token of a prefix. The flag is true if the end is not allowed there.
pub type Language = Box<dyn Fn(&[i32], bool) -> i32>;

/// A simulated engine that returns its result at once.
pub struct Engine {
    language: Language,
    /// It verifies proposals, so it stops at the first token that differs.
    verifies: bool,
    end: i32,
    /// After this many calls it refuses all others with this error.
    pub refuses_after: Option<(usize, Error)>,
    /// It returns logits if a call requests them.
    pub gives_logits: bool,
    pub room: Option<Room>,
    pub calls: Vec<Call>,
}

/// The limits of an engine. Like the executor of TensorRT-LLM, it shortens an answer so that the
/// draft tokens of one step still fit after it.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub max_seq_len: usize,
    pub max_draft_len: usize,
}

impl Room {
    /// Most new tokens of a call whose prefix has `prefix` tokens and whose proposal has `drafts`.
    /// For a call without a proposal, the engine reserves room for `max_draft_len` draft tokens.
    fn most(self, prefix: usize, drafts: usize) -> usize {
        let reserved = if drafts > 0 {
            drafts
        } else {
            self.max_draft_len
        };
        self.max_seq_len.saturating_sub(prefix + reserved)
    }
}

/// The next token after `ids` in the language `seed`; never the end if `no_end`.
pub fn next(seed: u64, ids: &[i32], no_end: bool) -> i32 {
    let begin = 0xCBF2_9CE4_8422_2325 ^ seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut mixed = ids.iter().fold(begin, |mixed, id| {
        (mixed ^ *id as u64).wrapping_mul(0x0100_0000_01B3)
    });
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    match ((mixed ^ (mixed >> 31)) % VOCABULARY as u64) as i32 {
        END if no_end => 1,
        token => token,
    }
}

impl Engine {
    pub fn new(role: Role, end: i32, language: Language) -> Self {
        Self {
            language,
            verifies: role == Role::Target,
            end,
            refuses_after: None,
            gives_logits: true,
            room: None,
            calls: Vec::new(),
        }
    }

    pub fn target(seed: u64) -> Self {
        let language = move |ids: &[i32], held| next(seed, ids, held);
        Self::new(Role::Target, END, Box::new(language))
    }

    pub fn draft(seed: u64) -> Self {
        let language = move |ids: &[i32], held| next(seed, ids, held);
        Self::new(Role::Draft, END, Box::new(language))
    }

    /// Refuse every call after this many.
    pub fn break_after(&mut self, calls: usize) {
        self.refuses_after = Some((calls, Error::EngineRefused("it broke".to_owned())));
    }

    pub fn run(&mut self, call: Call) -> EngineResult {
        let count = self.calls.len();
        let result = match &self.refuses_after {
            Some((calls, error)) if count >= *calls => Err(error.clone()),
            _ => Ok(self.tensors(&call)),
        };
        self.calls.push(call);
        result
    }

    fn tensors(&self, call: &Call) -> Vec<Tensor> {
        let prefix = integers(call, "input_ids");
        let new = self.tokens(call, &prefix);
        let ids = [prefix, new.clone()].concat();
        let length = ids.len() as i64;
        let mut outputs = vec![
            Tensor::int32("output_ids", &[1, 1, length], &ids),
            Tensor::scalar("sequence_length", length as i32),
        ];
        let requested = |name: &str| call.outputs.iter().any(|item| item == name);
        if requested("output_log_probs") {
            let values: Vec<f32> = new.iter().map(|token| -*token as f32).collect();
            let shape = [1, 1, values.len() as i64];
            outputs.push(Tensor::fp32("output_log_probs", &shape, &values));
        }
        if requested("generation_logits") && self.gives_logits {
            let shape = [1, 1, new.len() as i64, i64::from(VOCABULARY)];
            let values = vec![2.0; new.len() * VOCABULARY as usize];
            outputs.push(Tensor::fp32("generation_logits", &shape, &values));
        }
        // The value of each statistic is the number of the call, so that tests can identify it.
        for name in ["arrival_time_ns", "last_token_time_ns"] {
            if requested(name) {
                outputs.push(Tensor::scalar(name, self.calls.len() as i32));
            }
        }
        outputs
    }

    fn tokens(&self, call: &Call, prefix: &[i32]) -> Vec<i32> {
        let drafts = integers(call, "draft_input_ids");
        let minimum = MIN_NAMES.iter().find_map(|name| integer(call, name));
        let mut ids = prefix.to_vec();
        let mut new: Vec<i32> = Vec::new();
        let asked = integer(call, "request_output_len").unwrap_or(0) as usize;
        let most = self
            .room
            .map_or(asked, |room| room.most(prefix.len(), drafts.len()));
        for position in 0..asked.min(most) {
            let token = (self.language)(&ids, (new.len() as i64) < minimum.unwrap_or(0));
            if token == self.end {
                break;
            }
            ids.push(token);
            new.push(token);
            if self.verifies && !drafts.is_empty() && drafts.get(position) != Some(&token) {
                break;
            }
        }
        new
    }
}

/// A response of a streamed call: these tokens alone.
pub fn streamed(tokens: &[i32]) -> Vec<Tensor> {
    let length = tokens.len();
    vec![
        Tensor::int32("output_ids", &[1, 1, length as i64], tokens),
        Tensor::scalar("sequence_length", length as i32),
    ]
}

/// Whether a response has no tokens.
pub fn is_empty(outputs: &[Tensor]) -> bool {
    find(outputs, "output_ids").is_none_or(|ids| ids.data.is_empty())
}

/// A call for one token after these tokens.
pub fn call(role: Role, ids: &[i32]) -> Call {
    let inputs = vec![
        Tensor::int32("input_ids", &[1, ids.len() as i64], ids),
        Tensor::scalar("request_output_len", 1),
    ];
    Call {
        role,
        inputs,
        outputs: vec!["output_ids".into(), "sequence_length".into()],
        batchable: true,
        draft_tokens: 0,
        may_shorten: false,
        stream: None,
    }
}

/// The values of an input; empty if the call does not have it.
pub fn integers(call: &Call, name: &str) -> Vec<i32> {
    let tensor = find(&call.inputs, name).map(Tensor::integers);
    let values = tensor.unwrap_or_default();
    values.into_iter().map(|value| value as i32).collect()
}

/// The only value of an input.
pub fn integer(call: &Call, name: &str) -> Option<i64> {
    find(&call.inputs, name)?.integers().first().copied()
}
