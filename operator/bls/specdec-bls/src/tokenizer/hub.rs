//! The tokenizer of a Hugging Face model directory.

use std::path::{Path, PathBuf};

use tokenizers::Tokenizer as Library;

use super::Tokenizer;
use super::files::{self, Opened};
use super::longest::bytes_per_token;
use crate::error::Error;

/// How to treat the tokenizer's special tokens.
#[derive(Clone, Copy, Debug)]
pub struct Special {
    /// Add them to prompts.
    pub add: bool,
    /// Omit them from decoded text.
    pub skip: bool,
}

impl Default for Special {
    fn default() -> Self {
        Self {
            add: true,
            skip: true,
        }
    }
}

/// The tokenizer of a Hugging Face model directory.
///
/// A directory without `tokenizer.json` is converted by transformers, in a Python process.
pub struct HubTokenizer {
    library: Library,
    special: Special,
    size: usize,
    bytes_per_token: usize,
    end_id: i32,
    pad_id: i32,
    clean_up: bool,
}

impl HubTokenizer {
    /// Open a Hugging Face model directory.
    ///
    /// `helper` is the Python program that converts a directory without `tokenizer.json`. It never
    /// runs code of that directory.
    ///
    /// # Errors
    /// The directory holds no tokenizer that can be read.
    pub fn open(directory: &str, special: Special, helper: &Path) -> Result<Self, Error> {
        let folder: PathBuf = Path::new(directory)
            .components()
            .filter(|part| !matches!(part, std::path::Component::CurDir))
            .collect();
        let opened = if folder.join("tokenizer.json").is_file() {
            files::open_fast(&folder)?
        } else {
            files::open_transformers(&folder, helper)?
        };
        Self::of(opened, special, directory)
    }

    fn of(opened: Opened, special: Special, directory: &str) -> Result<Self, Error> {
        let mut library = opened.library;
        // The file may contain the truncation of the model's training. Prompts must stay whole.
        library
            .with_truncation(None)
            .map_err(|error| Error::Load(format!("tokenizer_dir {directory}: {error}")))?;
        library.with_padding(None);
        Ok(Self {
            size: library.get_vocab_size(true),
            bytes_per_token: bytes_per_token(&library),
            library,
            special,
            end_id: opened.end_id,
            pad_id: opened.pad_id,
            clean_up: opened.clean_up,
        })
    }

    fn ids(&self, text: &str, special: bool) -> Result<Vec<i32>, Error> {
        let encoding = self.library.encode_fast(text, special).map_err(|error| {
            Error::InvalidRequest(format!(
                "the tokenizer cannot read the text ({error}): send other text"
            ))
        })?;
        Ok(encoding.get_ids().iter().map(|id| *id as i32).collect())
    }
}

impl Tokenizer for HubTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<i32>, Error> {
        self.ids(text, self.special.add)
    }

    fn encode_word(&self, word: &str) -> Result<Vec<i32>, Error> {
        self.ids(word, false)
    }

    fn decode(&self, ids: &[i32]) -> String {
        let known: Vec<u32> = ids
            .iter()
            .filter_map(|id| u32::try_from(*id).ok())
            .filter(|id| (*id as usize) < self.size)
            .collect();
        // No decoder of the library fails. If one did, the tokens would have no text.
        let text = self.library.decode(&known, self.special.skip);
        let text = text.unwrap_or_default();
        if self.clean_up {
            without_spaces_before_punctuation(text)
        } else {
            text
        }
    }

    fn end_id(&self) -> i32 {
        self.end_id
    }

    fn pad_id(&self) -> i32 {
        self.pad_id
    }

    fn size(&self) -> usize {
        self.size
    }

    fn bytes_per_token(&self) -> usize {
        self.bytes_per_token
    }
}

/// Remove spaces before English punctuation and contractions, as some tokenizers of transformers do
/// after decoding.
fn without_spaces_before_punctuation(text: String) -> String {
    [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ]
    .iter()
    .fold(text, |text, (spaced, joined)| text.replace(spaced, joined))
}
