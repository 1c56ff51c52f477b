//! Locks that stay usable when a thread panicked while it held them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock a mutex, also after a panic of a thread that held it.
///
/// A panic is caught where Triton calls this library, and ends only one request. Other requests
/// continue to use the state that they share with it.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
