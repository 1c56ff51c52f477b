//! Locks that stay usable after a panic of a thread that held them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Take the lock. A panic is caught where Triton calls this library and ends one request; what
/// requests share stays in use.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
