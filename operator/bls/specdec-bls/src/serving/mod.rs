//! The BLS as Triton serves it: it takes requests, calls the engines and sends responses.
//!
//! The modules follow a request. Triton loads the model (`backend`, `model`) and sends it requests.
//! Threads of the `pool` parse them (`intake`) and start a sequence for each prompt (`in_flight`).
//! The sequences' engine calls are sent in batches (`in_flight_call`, `calls`), and their parts
//! leave as responses (`reply`). Results of engine calls arrive on Triton's threads, which run the
//! sequences that they belong to. A `watchdog` thread sends batches that have waited long enough,
//! and detects disconnected clients and dead engines (`process`). A client may also end a request by
//! another request, `stop` (`stops`).

mod backend;
mod calls;
mod in_flight;
mod in_flight_call;
mod intake;
mod memory;
mod metrics;
mod model;
pub mod pool;
pub mod process;
mod reply;
mod sources;
mod stops;
mod watchdog;

pub use backend::exported::*;
