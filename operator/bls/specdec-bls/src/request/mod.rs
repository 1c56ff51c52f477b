//! Reads a request into tasks, one for each prompt.
//!
//! A value that cannot be served is refused here, with one sentence for the client.

pub mod fields;
pub mod limits;
pub mod task;

use self::fields::{Fields, Row};
use self::limits::Limits;
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
/// Without any of these inputs the engines decode greedily.
const SAMPLING_INPUTS: [&str; 5] = ["top_k", "top_p", "temperature", "random_seed", "seed"];
/// Inputs that only the target alone can serve, and the reason of the fallback.
const TARGET_ONLY: [(&str, &str); 7] = [
    ("prompt_embedding_table", "prompt_table"),
    ("prompt_vocab_size", "prompt_table"),
    ("lora_task_id", "lora"),
    ("lora_weights", "lora"),
    ("lora_config", "lora"),
    ("guided_decoding_guide_type", "guided_decoding"),
    ("guided_decoding_guide", "guided_decoding"),
];
/// Logits, which only target-only calls return: the output, and the input that asks for it.
const LOGITS: [(&str, &str); 2] = [
    ("context_logits", "return_context_logits"),
    ("generation_logits", "return_generation_logits"),
];
const KV_STATISTICS: &str = "return_kv_cache_reuse_stats";
const STATISTICS: &str = "return_perf_metrics";
const MEDIA: [&str; 4] = [
    "image_input",
    "image_bytes_input",
    "video_bytes_input",
    "image_url_input",
];
const MIN_NAMES: [&str; 2] = ["min_length", "min_tokens"];

/// The tasks of a request, one for each prompt.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    pub tasks: Vec<Task>,
    /// Why the request is served without speculation although the server speculates, else empty.
    pub fallback: &'static str,
}

/// Read a request. The first dimension of every tensor is the number of prompts.
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
    // A request without a prompt would never be answered.
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
    /// The prompt's task, and the reason of a fallback.
    fn task(&self) -> Result<(Task, &'static str), Error> {
        self.refuse()?;
        let values = &self.values;
        let stop_texts = values.strings("stop_words")?;
        let stop_words = self.tokenizer.words(&stop_texts)?;
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
            min_name: self.server.min_name,
            max_seq_len: self.server.max_seq_len,
            stop_words,
            prompt,
        };
        Ok((task, fallback))
    }

    fn refuse(&self) -> Result<(), Error> {
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
        let asked = size(self.values.at_least("max_tokens", 1, 0)?);
        // The engines end an answer where their sequence ends, and refuse rounds beyond it. They
        // also refuse a prompt that leaves no room, with their own message.
        let room = self.server.max_seq_len.saturating_sub(prompt);
        Ok(if room > 0 { asked.min(room) } else { asked })
    }

    fn min_tokens(&self) -> Result<usize, Error> {
        let [first, second] = MIN_NAMES.map(|name| self.values.at_least(name, 0, 0));
        Ok(size(first?.max(second?)))
    }

    /// Draft tokens of a round, and why there are none although the server speculates.
    fn draft_tokens(&self) -> Result<(usize, &'static str), Error> {
        let asked = self.values.has("num_draft_tokens");
        let length = match asked {
            true => self.values.number("num_draft_tokens", -1)?,
            false => self.server.draft_tokens as i128,
        };
        self.refuse_length(length)?;
        match self.target_only_field() {
            Some((field, _)) if asked && length > 0 => Err(Error::InvalidRequest(format!(
                "{field} cannot be had together with num_draft_tokens {length}: \
                 set num_draft_tokens to 0 or leave the other out"
            ))),
            Some((_, reason)) if length > 0 => Ok((0, reason)),
            _ => Ok((size(length), "")),
        }
    }

    fn refuse_length(&self, length: i128) -> Result<(), Error> {
        let most = self.server.max_draft_tokens;
        let fix = if length < 0 {
            ": set it to 0 or more".to_owned()
        } else if length > 0 && !self.server.has_draft {
            ", but this server has no draft model: leave it out or set it to 0".to_owned()
        } else if length > most as i128 {
            format!(
                ", but the target is built for at most {most}: \
                 lower it, or raise maxDraftTokens and rebuild"
            )
        } else {
            return Ok(());
        };
        Err(Error::InvalidRequest(format!(
            "num_draft_tokens is {length}{fix}"
        )))
    }

    /// The field that only the target alone can serve, and the reason of the fallback.
    fn target_only_field(&self) -> Option<(&'static str, &'static str)> {
        let logits = LOGITS
            .iter()
            .find(|(_, flag)| self.values.flag(flag, false));
        let alone = TARGET_ONLY.iter().find(|(name, _)| self.values.has(name));
        logits.map(|(name, flag)| (*flag, *name)).or(alone.copied())
    }

    fn common(&self, stop: &[Vec<i32>]) -> Result<Vec<Tensor>, Error> {
        let (values, tokenizer) = (&self.values, self.tokenizer);
        let mut common: Vec<Tensor> = SAMPLING
            .iter()
            .filter_map(|(name, engine)| values.flat(name, engine))
            .collect();
        for (name, own) in [
            ("end_id", tokenizer.end_id()),
            ("pad_id", tokenizer.pad_id()),
        ] {
            common.push(Tensor::scalar(name, values.int32(name, own)?));
        }
        if !stop.is_empty() {
            common.push(word_array("stop_words_list", stop));
        }
        let bad = tokenizer.words(&values.strings("bad_words")?)?;
        if !bad.is_empty() {
            common.push(word_array("bad_words_list", &bad));
        }
        if values.has("embedding_bias_words") || values.has("embedding_bias_weights") {
            let weights = values.floats("embedding_bias_weights")?;
            let words = values.strings("embedding_bias_words")?;
            let bias = tokenizer.bias(&words, &weights)?;
            let shape = [1, bias.len() as i64];
            common.push(Tensor::fp32("embedding_bias", &shape, &bias));
        }
        Ok(common)
    }

    fn seed(&self) -> Result<Option<u64>, Error> {
        if !SAMPLING_INPUTS.iter().any(|name| self.values.has(name)) {
            return Ok(None);
        }
        // The engines use 0 where no seed is given.
        let [first, second] = SEED_NAMES.map(|name| self.values.number(name, 0));
        let seed = first?.max(second?).clamp(0, i128::from(u64::MAX));
        Ok(Some(seed as u64))
    }

    fn target_only_inputs(&self) -> Vec<Tensor> {
        let values = &self.values;
        let alone = TARGET_ONLY.iter();
        let alone = alone.filter_map(|(name, _)| values.whole(name, name));
        let logits = LOGITS.iter().map(|(_, flag)| *flag);
        let flags = logits.chain([KV_STATISTICS, STATISTICS]);
        let flags = flags.filter(|name| values.flag(name, false));
        alone.chain(flags.map(Tensor::flag)).collect()
    }

    fn target_only_outputs(&self) -> Vec<String> {
        let logits = LOGITS
            .iter()
            .filter(|(_, flag)| self.values.flag(flag, false));
        let mut names: Vec<String> = logits.map(|(name, _)| (*name).to_owned()).collect();
        if [STATISTICS, KV_STATISTICS]
            .iter()
            .any(|flag| self.values.flag(flag, false))
        {
            names.extend_from_slice(&self.server.target_outputs);
        }
        names
    }
}

/// A number of tokens, which the engines store in 32 bits.
fn size(value: i128) -> usize {
    value.clamp(0, i128::from(i32::MAX)) as usize
}
