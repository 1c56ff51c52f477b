//! Safe wrappers of Triton's C interface, for a backend that calls other models of its server.
//!
//! All code that handles Triton's pointers is in this crate, so that a backend needs no `unsafe`.
//! A backend implements [`Backend`] and exports it with [`export_backend!`]. It then receives each
//! client's [`Request`], calls other models through [`Server`], and publishes [`Metric`]s.
#![deny(clippy::indexing_slicing)]

mod allocator;
pub mod backend;
mod clock;
mod error;
mod inference;
mod input;
mod log;
pub mod memory;
mod metrics;
mod model;
mod outputs;
mod request;
mod server;
mod tensor;

pub use backend::Backend;
pub use error::{Code, Error};
pub use inference::{InferenceCall, OnResponse, PreparedCall, Response};
pub use input::InputSize;
pub use log::{Level, log};
pub use metrics::{Metric, MetricFamily};
pub use model::Model;
pub use request::Request;
pub use server::Server;
pub use tensor::{DataType, Tensor, element_count, packed};
