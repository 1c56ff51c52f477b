//! Opens a tokenizer directory: `tokenizer.json` here, anything else through transformers.

use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value};
use tokenizers::Tokenizer as Library;

use crate::error::Error;

/// The token id that the engines take for "none".
const NOT_A_TOKEN: i32 = -1;

/// What a tokenizer directory contains.
pub(super) struct Opened {
    pub library: Library,
    pub end_id: i32,
    pub pad_id: i32,
    /// Spaces before English punctuation are removed from decoded text.
    pub clean_up: bool,
}

/// Open a directory with `tokenizer.json`.
pub(super) fn open_fast(folder: &Path) -> Result<Opened, Error> {
    let file = folder.join("tokenizer.json");
    let library = Library::from_file(&file)
        .map_err(|error| Error::Load(format!("{} is no tokenizer: {error}", file.display())))?;
    let named = special_tokens(folder)?;
    let end = match token_id(&library, named.get("eos_token")) {
        Some(end) => end,
        None => configured_end(folder)?,
    };
    let pad = token_id(&library, named.get("pad_token"));
    Ok(Opened {
        library,
        end_id: end,
        pad_id: pad.unwrap_or(end),
        clean_up: false,
    })
}

/// Open a directory that only transformers can read, with the Python program `helper`.
pub(super) fn open_transformers(folder: &Path, helper: &Path) -> Result<Opened, Error> {
    let name = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let run = Command::new("python3").arg(helper).arg(name).output();
    let output = run.map_err(|error| {
        Error::Load(format!(
            "tokenizer_dir {} has no tokenizer.json and python3 cannot be started ({error}): \
             point tokenizer_dir at a directory with tokenizer.json",
            name.display()
        ))
    })?;
    let result = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default();
    let field = |name: &str| result.get(name).unwrap_or(&Value::Null);
    if let Some(message) = field("error").as_str() {
        return Err(Error::Load(message.to_owned()));
    }
    let Some(content) = field("tokenizer").as_str() else {
        let output = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Load(format!(
            "tokenizer_dir {} holds no tokenizer that transformers can read ({}): \
             put tokenizer.json there",
            name.display(),
            output.lines().last().unwrap_or("no reason is given")
        )));
    };
    let library = Library::from_bytes(content).map_err(|error| {
        Error::Load(format!(
            "tokenizer_dir {} holds no tokenizer that can be read here ({error}): \
             put tokenizer.json there",
            name.display()
        ))
    })?;
    let end = number(field("end_id")).unwrap_or(NOT_A_TOKEN);
    Ok(Opened {
        library,
        end_id: end,
        pad_id: number(field("pad_id")).unwrap_or(end),
        clean_up: field("clean_up").as_bool().unwrap_or(false),
    })
}

/// The end and the padding token, as the directory names them. The last file has precedence.
fn special_tokens(folder: &Path) -> Result<Map<String, Value>, Error> {
    let mut named = Map::new();
    for file in ["special_tokens_map.json", "tokenizer_config.json"] {
        let mut content = json(&folder.join(file))?;
        for key in ["eos_token", "pad_token"] {
            if let Some(value) = content.remove(key).filter(is_given) {
                named.insert(key.to_owned(), value);
            }
        }
    }
    Ok(named)
}

/// Whether Python treats the value as true. Transformers ignores a special token whose value Python
/// treats as false.
fn is_given(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(items) => !items.is_empty(),
    }
}

/// The id of the end token in the model's own configuration, for a tokenizer without an end token.
fn configured_end(folder: &Path) -> Result<i32, Error> {
    for file in ["generation_config.json", "config.json"] {
        let content = json(&folder.join(file))?;
        let end = match content.get("eos_token_id") {
            Some(Value::Array(ids)) => ids.first().and_then(number),
            Some(end) => number(end),
            None => None,
        };
        if let Some(end) = end {
            return Ok(end);
        }
    }
    Ok(NOT_A_TOKEN)
}

fn number(value: &Value) -> Option<i32> {
    value.as_i64().and_then(|id| i32::try_from(id).ok())
}

/// The id of a special token, which the files state as text or as an object with that text.
fn token_id(library: &Library, token: Option<&Value>) -> Option<i32> {
    let content = match token? {
        Value::Object(described) => described.get("content")?,
        plain => plain,
    };
    let id = library.token_to_id(content.as_str()?)?;
    i32::try_from(id).ok()
}

/// The JSON object in a file; empty if the file is missing or contains another value.
fn json(path: &Path) -> Result<Map<String, Value>, Error> {
    if !path.is_file() {
        return Ok(Map::new());
    }
    let bytes = std::fs::read(path)
        .map_err(|error| Error::Load(format!("{} cannot be read: {error}", path.display())))?;
    let content = serde_json::from_slice(&bytes)
        .or_else(|error| serde_json::from_slice(&without_infinities(&bytes)).map_err(|_| error))
        .map_err(|error| Error::Load(format!("{} is no JSON: {error}", path.display())))?;
    Ok(match content {
        Value::Object(object) => object,
        _ => Map::new(),
    })
}

/// Replace the numbers `Infinity` and `NaN` by null. Python writes them, but they are not JSON, and
/// no value that is read here is such a number.
fn without_infinities(bytes: &[u8]) -> Vec<u8> {
    let mut json = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    let mut quoted = false;
    while let Some((&first, behind)) = rest.split_first() {
        let numbers: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
        let number = numbers.iter().find(|number| rest.starts_with(number));
        if let Some(number) = number.filter(|_| !quoted) {
            json.extend_from_slice(b"null");
            rest = rest.get(number.len()..).unwrap_or_default();
            continue;
        }
        let taken = if quoted && first == b'\\' { 2 } else { 1 };
        quoted ^= first == b'"';
        let (copied, after) = rest.split_at(taken.min(behind.len() + 1));
        json.extend_from_slice(copied);
        rest = after;
    }
    json
}
