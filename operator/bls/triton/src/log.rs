//! The server's log.

use triton_sys as sys;

use crate::error::{c_string, check};

/// How urgent a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Level {
    Info = sys::TRITONSERVER_LOG_INFO,
    Warn = sys::TRITONSERVER_LOG_WARN,
    Error = sys::TRITONSERVER_LOG_ERROR,
}

/// Write a line to the server's log.
pub fn log(level: Level, message: &str) {
    let message = c_string(message);
    // SAFETY: Triton copies file and message, and hands the error over.
    let result = unsafe {
        check(sys::TRITONSERVER_LogMessage(
            level as i32,
            c"specdec".as_ptr(),
            0,
            message.as_ptr(),
        ))
    };
    // A log that cannot be written has no other place to report that.
    drop(result);
}
