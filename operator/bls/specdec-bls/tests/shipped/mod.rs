//! The tokenizer of the model pair that ships with the operator.

use std::path::{Path, PathBuf};

use triton_specdec::error::Error;
use triton_specdec::tokenizer::{HubTokenizer, Special};

const PAYLOAD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../specdec/images");

pub fn pair() -> PathBuf {
    Path::new(PAYLOAD).join("pair/target")
}

pub fn helper() -> PathBuf {
    Path::new(PAYLOAD).join("models/tensorrt_llm_bls/tokenizer_json.py")
}

pub fn open(folder: &Path) -> Result<HubTokenizer, Error> {
    HubTokenizer::open(&folder.to_string_lossy(), Special::default(), &helper())
}
