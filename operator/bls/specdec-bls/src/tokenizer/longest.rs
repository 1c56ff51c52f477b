//! Bounds the bytes of text that one token represents. The limit of a prompt in bytes is this bound
//! times the most tokens of a sequence.

use serde_json::Value;
use tokenizers::Tokenizer as Library;

/// Factor for a tokenizer that may drop or merge characters, so that a token may represent more
/// text than its own bytes. It is large enough: Unicode composition keeps at least a third of the
/// bytes, most characters of a text are not blanks or marks, and few tokens are as long as the
/// longest.
const MARGIN: usize = 4;
/// Normalizers and pre-tokenizers that keep every byte of the text. `Split` and `Sequence` do so
/// only in some settings, which [`is_lossless`] checks.
const LOSSLESS_STEPS: [&str; 5] = [
    "ByteLevel",
    "Digits",
    "FixedLength",
    "Prepend",
    "UnicodeScripts",
];

/// Most bytes of text of one token, 0 for an empty vocabulary.
///
/// A byte-level vocabulary writes every byte as one character, so the bound is the number of
/// characters of its longest token. For any other vocabulary, it is `MARGIN` times the bytes of the
/// longest token. If a step may drop bytes, `MARGIN` applies to a byte-level vocabulary as well.
/// `specdec_longest.py` has the same rule for the Python text models.
pub(super) fn bytes_per_token(library: &Library) -> usize {
    let steps = [
        serde_json::to_value(library.get_normalizer()),
        serde_json::to_value(library.get_pre_tokenizer()),
    ];
    // A step that cannot be serialized counts as one that drops bytes.
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
    if byte_level && steps.iter().all(is_lossless) {
        longest
    } else {
        MARGIN * longest
    }
}

fn is_byte_level(step: &Value) -> bool {
    step["type"] == "ByteLevel" || steps(step).any(is_byte_level)
}

/// Whether a step leaves every byte of the text to the model.
fn is_lossless(step: &Value) -> bool {
    match step["type"].as_str() {
        None => step.is_null(),
        Some("Sequence") => steps(step).all(is_lossless),
        Some("Split") => step["behavior"] != "Removed",
        Some(name) => LOSSLESS_STEPS.contains(&name),
    }
}

/// The steps of a sequence.
fn steps(step: &Value) -> impl Iterator<Item = &Value> {
    ["normalizers", "pretokenizers"]
        .iter()
        .filter_map(|name| step[*name].as_array())
        .flatten()
}
