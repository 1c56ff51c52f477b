//! Batches rows of many sequences.

mod calls;
mod clock;
mod late;
mod waiting;
