//! Requests of clients: the tasks that they become, and what is refused.

mod client;
mod random;
mod refusals;
mod target_only;
mod values;
