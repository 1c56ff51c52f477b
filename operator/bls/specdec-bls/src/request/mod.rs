//! Parses a request into tasks, one for each prompt.
//!
//! A value that cannot be served is refused here, with one sentence for the client. An engine would
//! report it later, and often less clearly.

pub mod fields;
pub mod limits;
mod target_only;
pub mod task;

use self::fields::{Fields, Row};
use self::limits::Limits;
use self::target_only::STATISTICS;
use self::task::Task;
pub use crate::config::Capabilities;
use crate::error::Error;
use crate::tokenizer::{Tokenizer, word_array};
use triton::Tensor;

/// The client's and the engine's name of inputs that every engine call repeats unchanged.
const SAMPLING: [(&str, &str); 7] = [
    ("top_k", "runtime_top_k"),
    ("top_p", "runtime_top_p"),
    ("temperature", "temperature"),
    ("length_penalty", "len_penalty"),
    ("repetition_penalty", "repetition_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
];
const SEED_NAMES: [&str; 2] = ["random_seed", "seed"];
/// A request with one of these inputs is sampled. Without them, the engines decode greedily.
const SAMPLING_INPUTS: [&str; 5] = ["top_k", "top_p", "temperature", "random_seed", "seed"];
/// Inputs of multimodal models, which are refused.
const MEDIA: [&str; 4] = [
    "image_input",
    "image_bytes_input",
    "video_bytes_input",
    "image_url_input",
];
/// A client may use the name of any release for the minimum of new tokens.
const MIN_NAMES: [&str; 2] = ["min_length", "min_tokens"];

/// The tasks of a request, one for each prompt.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    pub tasks: Vec<Task>,
    /// Why a server that speculates decodes this request target-only; empty for any other request.
    pub fallback: &'static str,
}

/// Parse a request. The first dimension of every tensor is the number of prompts.
///
/// # Errors
/// A value that cannot be served: its field, the value and the fix.
pub fn parse(
    tensors: &[Tensor],
    server: &Capabilities,
    tokenizer: &dyn Tokenizer,
) -> Result<Parsed, Error> {
    let prompts = tensors.iter().find(|tensor| tensor.name == "text_input");
    let rows = prompts.and_then(|tensor| tensor.shape.first()).copied();
    // Without a prompt there is no sequence, and the request would get no response.
    let rows = usize::try_from(rows.unwrap_or(0)).unwrap_or(0);
    if rows == 0 {
        return Err(no_prompt());
    }
    Limits::new(server.max_seq_len, tokenizer.bytes_per_token()).check(tensors)?;
    let fields = Fields::new(tensors, rows)?;
    let mut parsed = Parsed::default();
    for (row, values) in fields.rows().enumerate() {
        let prompt = Prompt {
            values,
            server,
            tokenizer,
        };
        let (task, fallback) = prompt.task()?;
        parsed.tasks.push(task);
        // A request counts once as a fallback, by its first prompt.
        if row == 0 {
            parsed.fallback = fallback;
        }
    }
    Ok(parsed)
}

fn no_prompt() -> Error {
    Error::InvalidRequest("text_input is empty: send at least one character".to_owned())
}

/// One prompt of a request.
struct Prompt<'a> {
    values: Row<'a>,
    server: &'a Capabilities,
    tokenizer: &'a dyn Tokenizer,
}

impl Prompt<'_> {
    /// The prompt's task, and the reason of its fallback or an empty string.
    fn task(&self) -> Result<(Task, &'static str), Error> {
        self.refuse_unsupported()?;
        let values = &self.values;
        let stop_texts = values.strings("stop_words")?;
        let stop_words = self.tokenizer.encode_list(&stop_texts)?;
        let prompt = self.prompt()?;
        let max_tokens = self.max_tokens(prompt.len())?;
        let (draft_tokens, fallback) = self.draft_tokens()?;
        let task = Task {
            max_tokens,
            draft_tokens,
            adaptive: draft_tokens > 0 && !values.has("num_draft_tokens"),
            min_tokens: self.min_tokens()?,
            end_id: values.int32("end_id", self.tokenizer.end_id())?,
            stop_texts: stop_texts
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect(),
            lookup_scope: values.scope()?,
            use_draft_logits: values.flag("use_draft_logits", self.server.use_draft_logits),
            stream: values.flag("stream", false),
            exclude_input: values.flag("exclude_input_in_output", false),
            log_probs: values.flag("return_log_probs", false),
            statistics: values.flag(STATISTICS, false),
            input_count: values.flag("return_num_input_tokens", false),
            output_count: values.flag("return_num_output_tokens", false),
            common: self.common(&stop_words)?,
            seed: self.seed()?,
            seed_name: self.server.seed_name(),
            target_only_inputs: self.target_only_inputs(),
            target_only_outputs: self.target_only_outputs(),
            min_tokens_name: self.server.min_tokens_name,
            max_seq_len: self.server.max_seq_len,
            max_draft_tokens: self.server.max_draft_tokens,
            stop_words,
            prompt,
        };
        Ok((task, fallback))
    }

    fn refuse_unsupported(&self) -> Result<(), Error> {
        if let Some(name) = MEDIA.iter().find(|name| self.values.has(name)) {
            return Err(Error::InvalidRequest(format!(
                "{name} is given, but this server reads text only: leave it out"
            )));
        }
        for name in ["beam_width", "num_return_sequences"] {
            let value = self.values.number(name, 1)?;
            if value != 1 {
                return Err(Error::InvalidRequest(format!(
                    "{name} is {value}, but the engines are built for one beam: set it to 1"
                )));
            }
        }
        if self.values.flag("use_draft_logits", false)
            && self.server.drafts
            && !self.server.has_draft_model
        {
            return Err(Error::InvalidRequest(
                "use_draft_logits is true, but this server drafts by lookups, which have no \
                 logits: leave it out"
                    .to_owned(),
            ));
        }
        if self.values.flag("stream", false) && !self.server.streams {
            return Err(Error::InvalidRequest(
                "stream is true, but this server answers once: leave stream out, \
                 or deploy with spec.serving.streaming true"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    fn prompt(&self) -> Result<Vec<i32>, Error> {
        let texts = self.values.strings("text_input")?;
        let ids = match texts.first() {
            Some(text) if !text.is_empty() => self.tokenizer.encode(text)?,
            _ => Vec::new(),
        };
        if ids.is_empty() {
            return Err(no_prompt());
        }
        Ok(ids)
    }

    fn max_tokens(&self, prompt: usize) -> Result<usize, Error> {
        let requested = token_count(self.values.at_least("max_tokens", 1, 0)?);
        // The target's engine has room for draft tokens beyond this limit, so it never shortens an
        // output within the limit. A shorter output than requested means that the answer has ended.
        let limit = self.server.max_seq_len;
        if limit == 0 {
            return Ok(requested);
        }
        match limit.saturating_sub(prompt) {
            0 => Err(Error::InvalidRequest(format!(
                "text_input has {prompt} tokens, more than the limit of {} for a prompt: \
                 send a shorter prompt",
                limit - 1
            ))),
            room => Ok(requested.min(room)),
        }
    }

    fn min_tokens(&self) -> Result<usize, Error> {
        let [first, second] = MIN_NAMES.map(|name| self.values.at_least(name, 0, 0));
        Ok(token_count(first?.max(second?)))
    }

    /// Draft tokens of a round, and the reason of a fallback or an empty string.
    fn draft_tokens(&self) -> Result<(usize, &'static str), Error> {
        let is_set = self.values.has("num_draft_tokens");
        let length = match is_set {
            true => self.values.number("num_draft_tokens", -1)?,
            false => self.server.draft_tokens as i128,
        };
        self.refuse_length(length)?;
        match self.target_only_field() {
            Some((field, _)) if is_set && length > 0 => Err(Error::InvalidRequest(format!(
                "{field} cannot be combined with num_draft_tokens {length}: \
                 set num_draft_tokens to 0 or leave the other out"
            ))),
            Some((_, reason)) if length > 0 => Ok((0, reason)),
            _ => Ok((token_count(length), "")),
        }
    }

    fn refuse_length(&self, length: i128) -> Result<(), Error> {
        let most = self.server.max_draft_tokens;
        let fix = if length < 0 {
            ": set it to 0 or more".to_owned()
        } else if length > 0 && !self.server.drafts {
            ", but this server has no draft model: leave it out or set it to 0".to_owned()
        } else if length > most as i128 {
            format!(
                ", but this server allows at most {most}: \
                 lower it, or raise draftLengthCeiling or maxDraftTokens"
            )
        } else {
            return Ok(());
        };
        Err(Error::InvalidRequest(format!(
            "num_draft_tokens is {length}{fix}"
        )))
    }

    /// The inputs of every engine call. `stop` are the token ids of the stop words.
    fn common(&self, stop: &[Vec<i32>]) -> Result<Vec<Tensor>, Error> {
        let (values, tokenizer) = (&self.values, self.tokenizer);
        let mut common: Vec<Tensor> = SAMPLING
            .iter()
            .filter_map(|(name, engine)| values.flat(name, engine))
            .collect();
        for (name, default) in [
            ("end_id", tokenizer.end_id()),
            ("pad_id", tokenizer.pad_id()),
        ] {
            common.push(Tensor::scalar(name, values.int32(name, default)?));
        }
        if !stop.is_empty() {
            common.push(word_array("stop_words_list", stop));
        }
        let bad = tokenizer.encode_list(&values.strings("bad_words")?)?;
        if !bad.is_empty() {
            common.push(word_array("bad_words_list", &bad));
        }
        if values.has("embedding_bias_words") || values.has("embedding_bias_weights") {
            let weights = values.floats("embedding_bias_weights")?;
            let bias_words = values.strings("embedding_bias_words")?;
            let bias = tokenizer.bias(&bias_words, &weights)?;
            let shape = [1, bias.len() as i64];
            common.push(Tensor::fp32("embedding_bias", &shape, &bias));
        }
        Ok(common)
    }

    fn seed(&self) -> Result<Option<u64>, Error> {
        if !SAMPLING_INPUTS.iter().any(|name| self.values.has(name)) {
            return Ok(None);
        }
        // As in the engines, the default is 0.
        let [first, second] = SEED_NAMES.map(|name| self.values.number(name, 0));
        let seed = first?.max(second?).clamp(0, i128::from(u64::MAX));
        Ok(Some(seed as u64))
    }
}

/// A number of tokens, limited to the 32 bits in which the engines store it.
fn token_count(value: i128) -> usize {
    value.clamp(0, i128::from(i32::MAX)) as usize
}
