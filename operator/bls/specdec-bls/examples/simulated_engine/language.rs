//! The output of a simulated engine: tokens that follow a rule, or tokens of given texts.

use std::fs::File;
use std::io::BufReader;

use serde_json::Value;
use triton::{Code, Error};

/// Number of token ids that the draft may propose. Where the target rejects a token, it returns an
/// id that the draft never proposes. There are equally many of those.
const TOKENS: usize = 400;
/// In how many of a hundred positions the target accepts the token of the draft.
const ACCEPTED: u64 = 80;
/// A token that no text contains.
const OTHER: i64 = 0;

/// The log probability that an engine reports for the only token of top-k 1, if it normalizes log
/// probabilities within the top k, as TensorRT-LLM does by default.
const CERTAIN: f32 = 0.0;

/// For each token of a text, the draft's tokens in its place and after it, with log probabilities.
type Drafts = Vec<Vec<(i64, f32)>>;

/// The tokens that continue a prefix.
pub enum Language {
    /// The position determines the draft's token. The target accepts it in `ACCEPTED` of a hundred
    /// positions, which depend on the first token as well.
    Rule,
    /// The rest of the text that begins with the prefix. The draft is right in `accepted` of a
    /// hundred positions.
    Texts { texts: Vec<Vec<i64>>, accepted: u64 },
    /// The rest of the text that begins with the prefix. What the draft proposes was recorded.
    Recorded {
        texts: Vec<Vec<i64>>,
        drafts: Vec<Drafts>,
    },
}

impl Language {
    /// The language of a model's configuration. Its parameter `texts` names a file with a JSON list
    /// of lists of token ids, and `drafts` one with the draft's tokens for each of them.
    pub fn of(config: &Value) -> Result<Self, Error> {
        let text = |key| {
            let value = config.pointer(&format!("/parameters/{key}/string_value"));
            value.and_then(Value::as_str)
        };
        let Some(path) = text("texts") else {
            return Ok(Self::Rule);
        };
        let texts = serde_json::from_reader(open(path)?).map_err(|error| invalid(path, &error))?;
        if let Some(path) = text("drafts") {
            let drafts = serde_json::from_reader(open(path)?);
            let drafts = drafts.map_err(|error| invalid(path, &error))?;
            return Ok(Self::Recorded { texts, drafts });
        }
        let accepted = text("accepted_percent").and_then(|it| it.parse().ok());
        let accepted = accepted.unwrap_or(ACCEPTED);
        Ok(Self::Texts { texts, accepted })
    }

    /// Add the tokens with which the target answers.
    pub fn answer(&self, whole: &mut Vec<i64>, drafts: Option<&[i64]>, new: usize) {
        let count = drafts.map_or(new, |drafts| drafts.len() + 1);
        for index in 0..count {
            let token = match self {
                Self::Rule => by_rule(whole, false),
                Self::Texts { texts, .. } | Self::Recorded { texts, .. } => by_text(whole, texts),
            };
            whole.push(token);
            if drafts.is_some_and(|drafts| drafts.get(index) != Some(&token)) {
                return;
            }
        }
    }

    /// Add the tokens of a proposal. Returns their log probabilities.
    pub fn propose(&self, whole: &mut Vec<i64>, new: usize) -> Vec<f32> {
        let next = |_| {
            let (token, log_prob) = match self {
                Self::Rule => (by_rule(whole, true), CERTAIN),
                Self::Texts { accepted, .. } if is_wrong(whole, *accepted) => (OTHER, CERTAIN),
                Self::Texts { texts, .. } => (by_text(whole, texts), CERTAIN),
                Self::Recorded { texts, drafts } => recorded(whole, texts, drafts),
            };
            whole.push(token);
            log_prob
        };
        (0..new).map(next).collect()
    }
}

fn open(path: &str) -> Result<BufReader<File>, Error> {
    let file = File::open(path).map_err(|error| invalid(path, &error))?;
    Ok(BufReader::new(file))
}

fn invalid(path: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(Code::InvalidArg, format!("{path}: {error}"))
}

/// A number that seems random, of the first token and the position.
fn mixed(whole: &[i64]) -> u64 {
    let first = whole.first().copied().unwrap_or(0) as u64;
    (first + whole.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}

fn by_rule(whole: &[i64], proposes: bool) -> i64 {
    let drafted = whole.len() % TOKENS + 1;
    let accepts = proposes || mixed(whole) % 100 < ACCEPTED;
    (if accepts { drafted } else { drafted + TOKENS }) as i64
}

fn is_wrong(whole: &[i64], accepted: u64) -> bool {
    mixed(whole) % 100 >= accepted
}

fn by_text(whole: &[i64], texts: &[Vec<i64>]) -> i64 {
    let text = texts.iter().find(|text| text.starts_with(whole));
    text.and_then(|text| text.get(whole.len()))
        .copied()
        .unwrap_or(OTHER)
}

/// The draft's next token and its log probability. `whole` is the beginning of a text, and after it
/// the tokens that the draft has proposed so far.
fn recorded(whole: &[i64], texts: &[Vec<i64>], drafts: &[Drafts]) -> (i64, f32) {
    let common = |text: &Vec<i64>| {
        let pairs = whole.iter().zip(text);
        pairs.take_while(|(left, right)| left == right).count()
    };
    let nearest = texts.iter().zip(drafts);
    let nearest = nearest.max_by_key(|(text, _)| common(text));
    let proposed = nearest.and_then(|(text, drafts)| {
        let (known, own) = whole.split_at(common(text));
        let proposed = drafts.get(known.len())?;
        let begins = own
            .iter()
            .zip(proposed)
            .all(|(own, (token, _))| own == token);
        proposed.get(own.len()).filter(|_| begins).copied()
    });
    proposed.unwrap_or((OTHER, CERTAIN))
}
