//! Triton's side: its interfaces, requests in, calls out, responses back.

mod answer;
mod bls;
mod calls;
mod entry;
mod error;
mod ffi;
mod given;
mod infer;
mod intake;
mod keeper;
pub mod memory;
mod metrics;
pub mod process;
mod prompt;
mod reply;
mod request;
mod row;
