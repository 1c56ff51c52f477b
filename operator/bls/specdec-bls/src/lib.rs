//! Speculative decoding of many answers at once, inside the server's own process.
//!
//! Triton loads this library as the backend of the model `tensorrt_llm_bls`. The modules below
//! `serving` know Triton; all others are plain computation, tested without a server.

pub mod answer;
pub mod chunk;
pub mod config;
pub mod engine;
pub mod error;
pub mod estimate;
pub mod fields;
pub mod gather;
pub mod generation;
pub mod limits;
pub mod lock;
pub mod matcher;
pub mod part;
pub mod policy;
pub mod pool;
pub mod rendering;
pub mod request;
pub mod response;
pub mod rows;
pub mod serving;
pub mod task;
pub mod text;
pub mod tokenizer;
