//! The BLS: speculative decoding of many sequences at once, inside the process of the server.
//!
//! Triton loads this library as the backend `specdec` of the model `tensorrt_llm_bls`. Only the
//! modules in `serving` call Triton's functions. The tests of all others need no server.
//!
//! A [`request`] is parsed into one task for each prompt. Each task becomes a [`sequence`], which
//! returns the calls of the two [`engine`]s that it needs next. [`batching`] merges the calls of
//! many sequences. [`response`] turns new tokens into the tensors that the client receives.
//!
//! Terms of this crate:
//!
//! - The *engines* are the Triton models of the target and of the draft.
//! - A *proposal* is the draft tokens of one round. A *verification* is the target's call that
//!   accepts or rejects them. Both together are a *round*.
//! - A *target-only run* is a series of new tokens that the target decodes without the draft.
//! - An *answer* is everything that is generated for one prompt. A *part* is what one response
//!   carries of it.
//! - A *row* is one sequence's share of a batch, or one prompt's share of a request.
//! - A *lookup* searches for an earlier occurrence of the last tokens. Its *candidate* is the
//!   tokens that followed that occurrence. A proposal from a lookup is the whole candidate or its
//!   first few tokens. Each token has a *class*: the server measures how often the target accepts
//!   the tokens of a class ([`lookup::Candidate`]).
#![deny(clippy::indexing_slicing)]

pub mod batching;
pub mod config;
pub mod draft_length;
pub mod engine;
pub mod error;
pub mod lock;
pub mod lookup;
pub mod request;
pub mod response;
pub mod sequence;
pub mod serving;
pub mod tokenizer;
