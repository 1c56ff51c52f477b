//! The BLS as Triton serves it: requests in, engine calls out, responses back.
//!
//! [`intake`](self) reads requests on threads of its own and starts their sequences. Results of
//! engine calls arrive on Triton's threads, which run the sequences that they belong to. A watchdog
//! thread sends batches that have waited long enough, and detects disconnected clients and dead engines.

mod backend;
mod batch;
mod calls;
mod in_flight;
mod intake;
mod metrics;
mod model;
pub mod pool;
pub mod process;
mod reply;
mod watchdog;

pub use backend::exported::*;
