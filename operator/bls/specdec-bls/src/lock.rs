//! Locks that outlive a panic of somebody who held them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Take the lock. Panics are caught where Triton calls in, and end one answer; what others share
/// stays in use.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
