//! The BLS: speculative decoding of many sequences at once, inside the process of the server.
//!
//! Triton loads this library as the backend `specdec` of the model `tensorrt_llm_bls`. The modules
//! in `serving` know Triton's interface; all others only compute, and are tested without a server.
//!
//! A [`request`] is read into one task for each prompt. Each task becomes a [`sequence`], which
//! asks for calls of the two [`engine`]s. [`batching`] brings the calls of many sequences together.
#![deny(clippy::indexing_slicing)]

pub mod batching;
pub mod config;
pub mod draft_length;
pub mod engine;
pub mod error;
pub mod lock;
pub mod request;
pub mod response;
pub mod sequence;
pub mod serving;
pub mod tokenizer;
