//! Triton's side: its interfaces, requests in, calls out, responses back.

mod backend;
mod bls;
mod calls;
mod intake;
mod keeper;
mod metrics;
pub mod process;
mod prompt;
mod reply;
mod row;

pub use backend::exported::*;
