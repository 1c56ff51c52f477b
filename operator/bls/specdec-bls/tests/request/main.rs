//! Requests of clients: what they may ask, what it becomes, and what is refused.

mod asking;
mod random;
mod refusals;
mod target_only;
mod values;
