//! Writes to the server's log.

use triton_sys as sys;

use crate::error::{c_string, check};

/// The severity of a line.
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
    // SAFETY: Triton copies the file's name and the message; this function owns the error.
    let result = unsafe {
        check(sys::TRITONSERVER_LogMessage(
            level as i32,
            c"specdec".as_ptr(),
            0,
            message.as_ptr(),
        ))
    };
    // There is no other place to report a failure of the log.
    drop(result);
}
