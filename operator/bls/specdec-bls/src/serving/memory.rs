//! Connects sequences with the memory of finished texts.

use std::sync::Arc;

use super::model::Bls;
use crate::lookup::Lookup;
use crate::request::task::Task;

impl Bls {
    /// The lookups of a sequence: in its own text, and in the texts of the scope that it names.
    pub(super) fn lookup(&self, task: &Task) -> Option<Lookup> {
        let lookup = Lookup::new(self.settings.lookup_min_match?);
        Some(match (&self.memory, &task.lookup_scope) {
            (Some(memory), Some(scope)) => lookup.remembering(Arc::clone(memory), scope.clone()),
            _ => lookup,
        })
    }

    /// Learn a finished text in the scope that its request names. The thread that encodes long
    /// prompts does that, so no result of an engine waits. A text for which that thread has no room
    /// is not learned.
    pub(super) fn remember(&self, task: &Task, text: &[i32]) {
        let (Some(memory), Some(scope)) = (&self.memory, &task.lookup_scope) else {
            return;
        };
        let bytes = size_of_val(text);
        if self.pool.has_room(bytes) {
            let (memory, scope, text) = (Arc::clone(memory), scope.clone(), text.to_vec());
            let metrics = Arc::clone(&self.metrics);
            let job = move || {
                memory.learn(&scope, &text);
                metrics.memory_bytes(memory.bytes());
            };
            self.pool.run_long(bytes, Box::new(job));
        }
    }
}
