//! Reads the model's configuration, its `config.pbtxt`, once while the model loads.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::batching::waits::Synchronization;
use crate::error::Error;
use crate::tokenizer::is_true;

const TRUE_VALUES: [&str; 3] = ["true", "1", "yes"];
/// Declared outputs that are no statistics of the target: those that the BLS computes, and the
/// logits, which are requested separately. Every other declared output is a statistic of the
/// target.
const OWN_OUTPUTS: [&str; 10] = [
    "text_output",
    "batch_index",
    "sequence_index",
    "cum_log_probs",
    "output_log_probs",
    "context_logits",
    "generation_logits",
    "num_input_tokens",
    "num_output_tokens",
    "acceptance_histogram",
];

/// What requests may ask of this server, and the defaults for what they leave out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Draft tokens of a round, if the request sets no `num_draft_tokens`.
    pub draft_tokens: usize,
    /// Most draft tokens of a round that a request may set. The target's engine accepts at least as
    /// many.
    pub max_draft_tokens: usize,
    /// Most tokens of prompt and answer together, 0 if unknown. The target's engine is built for
    /// more tokens, so that the draft tokens of a step fit even at this limit.
    pub max_seq_len: usize,
    /// The server drafts, with a draft model or by lookups.
    pub drafts: bool,
    /// The server has a draft model, whose logits the target can compare.
    pub has_draft_model: bool,
    /// The server can send an answer in parts.
    pub streams: bool,
    /// The default of `use_draft_logits`: whether the target compares the draft's logits.
    pub use_draft_logits: bool,
    /// The engines' input for the minimum of new tokens: `min_length`, or `min_tokens` in newer
    /// releases of TensorRT-LLM.
    pub min_tokens_name: &'static str,
    /// Statistics of the target that responses can carry, with or without rounds.
    pub target_outputs: Vec<String>,
}

impl Capabilities {
    /// The engines' input for the seed. It was renamed in the same release as the minimum.
    pub fn seed_name(&self) -> &'static str {
        match self.min_tokens_name {
            "min_tokens" => "seed",
            _ => "random_seed",
        }
    }
}

/// Draft lengths that the adaptive policy may choose, tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptive {
    pub least: usize,
    pub most: usize,
    /// The length until something is measured.
    pub start: usize,
}

/// The model's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The Hugging Face directory of the target's tokenizer.
    pub tokenizer_dir: String,
    /// The tokenizer adds its special tokens to prompts.
    pub add_special_tokens: bool,
    /// Decoded text omits special tokens.
    pub skip_special_tokens: bool,
    /// The Triton model of the target.
    pub target: String,
    /// The Triton model of the draft, if there is one.
    pub draft: Option<String>,
    /// What requests may ask for.
    pub capabilities: Capabilities,
    /// None where the draft length is fixed.
    pub adaptive: Option<Adaptive>,
    /// Fewest tokens of a match that lookups use; None without lookups.
    pub lookup_min_match: Option<usize>,
    /// Most bytes of the texts that lookups keep across requests; None to keep none.
    pub lookup_memory_bytes: Option<usize>,
    /// Most sequences in flight at which drafting is pipelined; 0 for never.
    pub pipelined_sequences: usize,
    /// Most sequences in flight, at least 1.
    pub max_in_flight: usize,
    /// Each response of a stream carries the whole text so far.
    pub accumulate_tokens: bool,
    /// Names of the outputs that the configuration declares.
    pub declared: BTreeSet<String>,
    /// A request may have any number of responses.
    pub decoupled: bool,
    /// Most prompts that a step of an engine takes, at least 1.
    pub max_batch_size: usize,
    /// Most prompts of one engine call, from 1 to `max_batch_size`.
    pub rows_per_call: usize,
    /// Whether sequences wait for each other.
    pub synchronization: Synchronization,
}

impl Settings {
    /// Read a configuration in Triton's JSON.
    ///
    /// # Errors
    /// A value that the model cannot be loaded with.
    pub fn read(text: &str) -> Result<Self, Error> {
        let config: Value = serde_json::from_str(text).map_err(|error| {
            Error::Load(format!("the model's configuration is no JSON: {error}"))
        })?;
        let config = Config(&config);
        let tokenizer_dir = config.text("tokenizer_dir", "");
        if tokenizer_dir.is_empty() {
            return Err(Error::Load(
                "tokenizer_dir is empty: point it at a directory with tokenizer.json".to_owned(),
            ));
        }
        let draft = Some(config.text("tensorrt_llm_draft_model_name", ""));
        let draft = draft.filter(|name| !name.is_empty());
        let min_match = config.number("lookup_min_match", 0)?;
        let lookup_min_match = Some(min_match).filter(|tokens| *tokens > 0);
        let megabytes = config.number("lookup_memory_megabytes", 0)?;
        let lookup_memory_bytes = lookup_min_match
            .filter(|_| megabytes > 0)
            .map(|_| megabytes << 20);
        let capabilities = config.capabilities(draft.is_some(), lookup_min_match.is_some())?;
        let pipelined_sequences = config.number("draft_ahead", 0)?;
        let max_in_flight = config.number("max_in_flight", 16)?;
        if max_in_flight == 0 {
            return Err(Error::Load(
                "max_in_flight is 0: set it to 1 or more".to_owned(),
            ));
        }
        let accumulate = config.text("accumulate_tokens", "").to_lowercase();
        Ok(Self {
            tokenizer_dir,
            add_special_tokens: config.is_true("add_special_tokens"),
            skip_special_tokens: config.is_true("skip_special_tokens"),
            target: config.text("tensorrt_llm_model_name", "tensorrt_llm"),
            adaptive: config.adaptive(&capabilities)?,
            lookup_min_match,
            lookup_memory_bytes,
            pipelined_sequences: draft.as_ref().map_or(0, |_| pipelined_sequences),
            max_in_flight,
            accumulate_tokens: TRUE_VALUES.contains(&accumulate.as_str()),
            declared: config.names("output"),
            decoupled: config.decoupled(),
            max_batch_size: config.max_batch_size(),
            rows_per_call: config.rows_per_call()?,
            synchronization: config.synchronization()?,
            draft,
            capabilities,
        })
    }
}

/// A model's configuration in Triton's JSON.
struct Config<'a>(&'a Value);

impl Config<'_> {
    /// A parameter; `default` where it is missing, empty or an unfilled placeholder.
    fn text(&self, key: &str, default: &str) -> String {
        let value = self.0.pointer(&format!("/parameters/{key}/string_value"));
        let value = value.and_then(Value::as_str);
        let value = value.filter(|text| !text.is_empty() && !text.starts_with("${"));
        value.unwrap_or(default).to_owned()
    }

    fn number(&self, key: &str, default: usize) -> Result<usize, Error> {
        let text = self.text(key, "");
        if text.is_empty() {
            return Ok(default);
        }
        // The engines store lengths and limits in 32 bits as well.
        let number = text.trim().parse::<u32>();
        let number = number.map_err(|_| {
            Error::Load(format!(
                "{key} is {text}: set it to a whole number of 0 or more"
            ))
        })?;
        Ok(number as usize)
    }

    /// A boolean parameter: true, unless its value means false.
    fn is_true(&self, key: &str) -> bool {
        is_true(&self.text(key, "true"))
    }

    fn decoupled(&self) -> bool {
        let policy = &self.0["model_transaction_policy"];
        policy["decoupled"].as_bool().unwrap_or(false)
    }

    /// The batch size, which this model shares with the engines.
    fn max_batch_size(&self) -> usize {
        let size = self.0["max_batch_size"].as_u64().unwrap_or(0);
        usize::try_from(size).unwrap_or(1).max(1)
    }

    /// Most rows of an engine call. Each row needs its own response, and an engine that is not
    /// decoupled sends only one response per call. Its calls therefore have one row.
    /// The operator makes the engines decoupled exactly if this model is.
    fn rows_per_call(&self) -> Result<usize, Error> {
        let rows = self.number("rows_per_call", 1)?;
        if rows == 0 {
            return Err(Error::Load(
                "rows_per_call is 0: set it to 1 or more".to_owned(),
            ));
        }
        let most = if self.decoupled() {
            self.max_batch_size()
        } else {
            1
        };
        Ok(rows.min(most))
    }

    fn synchronization(&self) -> Result<Synchronization, Error> {
        match self.text("synchronize_rounds", "Measured").as_str() {
            "Measured" => Ok(Synchronization::Measured),
            "Always" => Ok(Synchronization::Always),
            "Never" => Ok(Synchronization::Never),
            other => Err(Error::Load(format!(
                "synchronize_rounds is {other}: set it to Measured, Always or Never"
            ))),
        }
    }

    /// Names of the inputs or the outputs.
    fn names(&self, list: &str) -> BTreeSet<String> {
        let tensors = self.0[list].as_array().into_iter().flatten();
        let names = tensors.filter_map(|tensor| tensor["name"].as_str());
        names.map(str::to_owned).collect()
    }

    fn capabilities(&self, has_draft_model: bool, looks_up: bool) -> Result<Capabilities, Error> {
        let drafts = has_draft_model || looks_up;
        let draft_tokens = self.number("num_draft_tokens", 0)?;
        let min_tokens_name = match self.names("input").contains("min_tokens") {
            true => "min_tokens",
            false => "min_length",
        };
        let mut target_outputs = self.names("output");
        target_outputs.retain(|name| !OWN_OUTPUTS.contains(&name.as_str()));
        Ok(Capabilities {
            draft_tokens: if drafts { draft_tokens } else { 0 },
            max_draft_tokens: self.number("max_draft_tokens", 0)?,
            max_seq_len: self.number("max_seq_len", 0)?,
            drafts,
            has_draft_model,
            streams: self.decoupled(),
            use_draft_logits: self.text("use_draft_logits", "").to_lowercase() == "true",
            min_tokens_name,
            target_outputs: target_outputs.into_iter().collect(),
        })
    }

    fn adaptive(&self, capabilities: &Capabilities) -> Result<Option<Adaptive>, Error> {
        let adaptive = self.text("draft_length_policy", "Fixed") == "Adaptive";
        if !adaptive || capabilities.draft_tokens == 0 {
            return Ok(None);
        }
        let bounds = Adaptive {
            least: self.number("min_draft_length", 0)?,
            most: self.number("max_draft_length", capabilities.max_draft_tokens)?,
            start: capabilities.draft_tokens,
        };
        if bounds.least > bounds.most {
            return Err(Error::Load(format!(
                "min_draft_length is {}, more than max_draft_length {}: lower it",
                bounds.least, bounds.most
            )));
        }
        Ok(Some(bounds))
    }
}
