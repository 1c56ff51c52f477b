//! Implements Triton's backend interface: loads the model, passes requests to it and unloads it.

use std::path::Path;
use std::sync::Arc;

use triton::{Backend, Error, Model, Request};

use super::metrics::Metrics;
use super::model::Bls;
use crate::config::Settings;
use crate::error;
use crate::tokenizer::{HubTokenizer, Special};

/// A Python program in the model's directory: it converts a tokenizer without `tokenizer.json`.
const HELPER: &str = "tokenizer_json.py";

impl Backend for Bls {
    const NAME: &'static str = "tensorrt_llm_bls";

    fn load(model: &Model<'_>) -> Result<Arc<Self>, Error> {
        load(model).map_err(Error::from)
    }

    fn announce(&self, requests: usize) {
        Bls::announce(self, requests);
    }

    fn accept(self: &Arc<Self>, request: Request) {
        Bls::accept(self, request);
    }

    fn unload(&self) {
        self.close();
    }
}

fn load(model: &Model<'_>) -> Result<Arc<Bls>, error::Error> {
    let settings = Settings::read(&model.config()?)?;
    let special = Special {
        add: settings.add_special_tokens,
        skip: settings.skip_special_tokens,
    };
    let helper = Path::new(&model.directory()?).join(HELPER);
    let tokenizer = HubTokenizer::open(&settings.tokenizer_dir, special, &helper)?;
    let metrics = Metrics::new(
        &model.name()?,
        model.version()?,
        settings.capabilities.draft_tokens,
    )?;
    Bls::new(settings, model.server()?, Arc::new(tokenizer), metrics)
}

/// The functions that Triton calls in the library.
#[allow(unsafe_code, non_snake_case)]
pub mod exported {
    triton::export_backend!(super::Bls);
}
