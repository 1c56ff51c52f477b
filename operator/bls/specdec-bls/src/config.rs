//! What the model's configuration in Triton says, read once when the model loads.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::Error;
use crate::tokenizer::is_true;

const TRUE_WORDS: [&str; 3] = ["true", "1", "yes"];
/// What the target gives besides what `passed_on` names: text, log probabilities, logits, counts.
const OWN_OUTPUTS: [&str; 9] = [
    "text_output",
    "batch_index",
    "sequence_index",
    "cum_log_probs",
    "output_log_probs",
    "context_logits",
    "generation_logits",
    "num_input_tokens",
    "num_output_tokens",
];

/// What this server offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Draft length of a request that names none, tokens.
    pub draft_tokens: usize,
    /// The ceiling built into the target's engine, tokens.
    pub max_draft_tokens: usize,
    /// Tokens of prompt and answer together at most, 0 if unknown.
    pub max_seq_len: usize,
    /// A draft model is served.
    pub has_draft: bool,
    /// Answers may come in parts.
    pub streams: bool,
    /// Acceptance by logits for a request that does not say.
    pub use_draft_logits: bool,
    /// How this release spells the minimum length.
    pub min_name: &'static str,
    /// Outputs that the plain path hands on from the target.
    pub passed_on: Vec<String>,
}

impl Server {
    /// How this release spells the seed; both names changed in the same one.
    pub fn seed_name(&self) -> &'static str {
        match self.min_name {
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
    /// The length that it begins with.
    pub start: usize,
}

/// All that the configuration says about this model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The Hugging Face directory of the target's tokenizer.
    pub tokenizer_dir: String,
    /// Prompts get the tokenizer's own special tokens.
    pub add_special_tokens: bool,
    /// Special tokens are left out of decoded text.
    pub skip_special_tokens: bool,
    /// Name of the target's model.
    pub target: String,
    /// Name of the draft's model.
    pub draft: Option<String>,
    /// What requests may ask for.
    pub server: Server,
    /// None where the draft length is fixed.
    pub adaptive: Option<Adaptive>,
    /// Answers at once whose draft runs ahead of the verification; 0 for none.
    pub draft_ahead: usize,
    /// Answers at once, at least 1.
    pub max_in_flight: usize,
    /// Every part of a stream carries the whole text so far.
    pub accumulate_tokens: bool,
    /// Outputs that this release's configuration has.
    pub declared: BTreeSet<String>,
    /// Requests get any number of responses.
    pub decoupled: bool,
    /// Prompts of one call to an engine at most, at least 1.
    pub max_batch_size: usize,
}

impl Settings {
    /// Read a model's configuration as Triton gives it, JSON.
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
        let server = config.server(draft.is_some())?;
        let draft_ahead = config.number("draft_ahead", 0)?;
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
            adaptive: config.adaptive(&server)?,
            draft_ahead: if draft.is_some() { draft_ahead } else { 0 },
            max_in_flight,
            accumulate_tokens: TRUE_WORDS.contains(&accumulate.as_str()),
            declared: config.names("output"),
            decoupled: config.decoupled(),
            max_batch_size: config.max_batch_size(),
            draft,
            server,
        })
    }
}

/// Triton's own form of a model's configuration.
struct Config<'a>(&'a Value);

impl Config<'_> {
    /// A parameter; an empty or unfilled one counts as absent.
    fn text(&self, key: &str, default: &str) -> String {
        let value = self.0["parameters"][key]["string_value"].as_str();
        let given = value.filter(|text| !text.is_empty() && !text.starts_with("${"));
        given.unwrap_or(default).to_owned()
    }

    fn number(&self, key: &str, default: usize) -> Result<usize, Error> {
        let text = self.text(key, "");
        if text.is_empty() {
            return Ok(default);
        }
        // Lengths and limits are counted in 32 bits by the engines too.
        let number = text.trim().parse::<u32>();
        let number = number.map_err(|_| {
            Error::Load(format!(
                "{key} is {text}: set it to a whole number of 0 or more"
            ))
        })?;
        Ok(number as usize)
    }

    /// True by default, as is everything but the words for false.
    fn is_true(&self, key: &str) -> bool {
        is_true(&self.text(key, "true"))
    }

    fn decoupled(&self) -> bool {
        let policy = &self.0["model_transaction_policy"];
        policy["decoupled"].as_bool().unwrap_or(false)
    }

    /// The generator gives the engines and this model one batch size.
    fn max_batch_size(&self) -> usize {
        let size = self.0["max_batch_size"].as_u64().unwrap_or(0);
        usize::try_from(size).unwrap_or(1).max(1)
    }

    /// Names of the inputs or the outputs.
    fn names(&self, list: &str) -> BTreeSet<String> {
        let tensors = self.0[list].as_array().into_iter().flatten();
        let names = tensors.filter_map(|tensor| tensor["name"].as_str());
        names.map(str::to_owned).collect()
    }

    fn server(&self, has_draft: bool) -> Result<Server, Error> {
        let draft_tokens = self.number("num_draft_tokens", 0)?;
        let min_name = match self.names("input").contains("min_tokens") {
            true => "min_tokens",
            false => "min_length",
        };
        let mut passed_on = self.names("output");
        passed_on.retain(|name| !OWN_OUTPUTS.contains(&name.as_str()));
        Ok(Server {
            draft_tokens: if has_draft { draft_tokens } else { 0 },
            max_draft_tokens: self.number("max_draft_tokens", 0)?,
            max_seq_len: self.number("max_seq_len", 0)?,
            has_draft,
            streams: self.decoupled(),
            use_draft_logits: self.text("use_draft_logits", "").to_lowercase() == "true",
            min_name,
            passed_on: passed_on.into_iter().collect(),
        })
    }

    fn adaptive(&self, server: &Server) -> Result<Option<Adaptive>, Error> {
        let adaptive = self.text("draft_length_policy", "Fixed") == "Adaptive";
        if !adaptive || server.draft_tokens == 0 {
            return Ok(None);
        }
        let bounds = Adaptive {
            least: self.number("min_draft_length", 0)?,
            most: self.number("max_draft_length", server.max_draft_tokens)?,
            start: server.draft_tokens,
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
