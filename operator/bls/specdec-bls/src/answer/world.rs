//! What an answer works with, and where its wishes and its parts go.

use std::sync::Arc;

use crate::chunk::Chunk;
use crate::engine::Call;
use crate::error::Error;
use crate::part::Part;
use crate::policy::Lengths;
use crate::tokenizer::Tokenizer;

/// How an answer ends.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Done,
    Cancelled,
    Failed(Error),
}

/// Where an answer's wishes and its parts go.
pub trait Io {
    /// Make a call and tell the answer by `answered`.
    fn call(&mut self, call: Call);
    /// Make a call of the draft beside it and tell by `ahead_answered` with the same number; false
    /// while enough of those are under way.
    fn ahead(&mut self, number: u64, call: Call) -> bool;
    /// Hand out a part.
    fn part(&mut self, part: Part);
    /// Nothing follows.
    fn end(&mut self, end: End);
    /// Whether the client has gone away.
    fn cancelled(&self) -> bool;
}

/// Counts what the server did.
pub trait Meter: Send + Sync {
    /// One more chunk was generated.
    fn chunk(&self, chunk: &Chunk);
    /// The draft refused a call, in these words: an answer goes on without it.
    fn draft_failed(&self, words: &str);
}

/// What an answer works with besides its task.
pub struct Means {
    pub tokenizer: Arc<dyn Tokenizer>,
    pub lengths: Box<dyn Lengths>,
    pub meter: Arc<dyn Meter>,
    pub has_draft: bool,
    /// The draft may propose while the target verifies.
    pub ahead: bool,
}
