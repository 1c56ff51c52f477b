//! Speculative decoding of many answers at once, inside the server's own process.
//!
//! Triton loads this library as the backend of the model `tensorrt_llm_bls`. The modules below
//! `triton` know Triton; all others are plain computation, tested without a server.

pub mod config;
pub mod fields;
pub mod part;
pub mod request;
pub mod response;
pub mod task;
pub mod tensor;
pub mod tokenizer;
