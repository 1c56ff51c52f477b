//! The output of a simulated engine: by a rule, or of given texts.

use std::fs::File;

use serde_json::Value;
use triton::{Code, Error};

/// Number of token ids that the draft may propose. Where the target rejects a token, it returns one
/// of as many other ids.
const TOKENS: usize = 400;
/// In how many of a hundred positions the target accepts the token of the draft.
const ACCEPTED: u64 = 80;
/// A token that no text contains.
const OTHER: i64 = 0;

/// The tokens that continue a prefix.
pub enum Language {
    /// The position determines the token.
    Rule,
    /// The rest of the text that begins with the prefix. The draft is right in as many of a hundred
    /// positions.
    Texts { texts: Vec<Vec<i64>>, accepted: u64 },
}

impl Language {
    /// The language of a model's configuration. Its parameter `texts` names a file with a JSON list
    /// of lists of token ids.
    pub fn of(config: &Value) -> Result<Self, Error> {
        let text = |key| config.pointer(&format!("/parameters/{key}/string_value"));
        let Some(path) = text("texts").and_then(Value::as_str) else {
            return Ok(Self::Rule);
        };
        let file = File::open(path).map_err(|error| invalid(path, &error))?;
        let texts = serde_json::from_reader(file).map_err(|error| invalid(path, &error))?;
        let accepted = text("accepted_percent").and_then(Value::as_str);
        let accepted = accepted.and_then(|it| it.parse().ok()).unwrap_or(ACCEPTED);
        Ok(Self::Texts { texts, accepted })
    }

    /// Add the tokens of a proposal, or those with which the target answers.
    pub fn extend(&self, whole: &mut Vec<i64>, drafts: Option<&[i64]>, new: usize, proposes: bool) {
        let count = drafts.map_or(new, |drafts| drafts.len() + 1);
        for index in 0..count {
            let token = match self {
                Self::Rule => by_rule(whole, proposes),
                Self::Texts { texts, accepted } => match proposes {
                    true if is_wrong(whole, *accepted) => OTHER,
                    _ => by_text(whole, texts),
                },
            };
            whole.push(token);
            if drafts.is_some_and(|drafts| drafts.get(index) != Some(&token)) {
                return;
            }
        }
    }
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
