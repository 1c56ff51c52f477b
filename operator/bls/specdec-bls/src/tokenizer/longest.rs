//! Bounds the bytes of text of one token, from which the limit of a prompt follows.

use serde_json::Value;
use tokenizers::Tokenizer as Library;

/// Factor for a tokenizer that may drop or merge characters. Composition makes at most one byte of
/// three, texts have fewer blanks and marks than other characters, and few tokens are as long as
/// the longest.
const MARGIN: usize = 4;
/// Steps before the model that keep every byte, besides `Split` and `Sequence`.
const KEEPING: [&str; 5] = [
    "ByteLevel",
    "Digits",
    "FixedLength",
    "Prepend",
    "UnicodeScripts",
];

/// Most bytes of text of one token, 0 for an empty vocabulary.
///
/// A byte-level vocabulary writes every byte as one character, so its longest token is the bound.
/// `specdec_longest.py` has the same rule for the Python text models.
pub(super) fn bytes_per_token(library: &Library) -> usize {
    let steps = [
        serde_json::to_value(library.get_normalizer()),
        serde_json::to_value(library.get_pre_tokenizer()),
    ];
    // A step that cannot be serialized may drop bytes.
    let steps = steps.map(|step| step.unwrap_or(Value::Bool(true)));
    let byte_level = steps.iter().any(is_byte_level);
    let bytes = |token: &String| match byte_level {
        true => token.chars().count(),
        false => token.len(),
    };
    let vocabulary = library.get_vocab(false);
    let learned = vocabulary.keys().map(bytes).max().unwrap_or(0);
    let added = library.get_added_tokens_decoder();
    let added = added.values().map(|token| token.content.len()).max();
    let longest = learned.max(added.unwrap_or(0));
    if byte_level && steps.iter().all(keeps) {
        longest
    } else {
        MARGIN * longest
    }
}

fn is_byte_level(step: &Value) -> bool {
    step["type"] == "ByteLevel" || steps(step).any(is_byte_level)
}

/// Whether a step leaves every byte of the text to the model.
fn keeps(step: &Value) -> bool {
    match step["type"].as_str() {
        None => step.is_null(),
        Some("Sequence") => steps(step).all(keeps),
        Some("Split") => step["behavior"] != "Removed",
        Some(name) => KEEPING.contains(&name),
    }
}

/// The steps of a sequence.
fn steps(step: &Value) -> impl Iterator<Item = &Value> {
    ["normalizers", "pretokenizers"]
        .iter()
        .filter_map(|name| step[*name].as_array())
        .flatten()
}
