//! Triton's errors as Rust values, and the barrier that keeps panics out of C code.

use std::ffi::{CStr, CString};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use triton_sys as sys;

use crate::log::{Level, log};

/// Error codes of Triton, which clients see as status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Unknown = sys::TRITONSERVER_ERROR_UNKNOWN,
    Internal = sys::TRITONSERVER_ERROR_INTERNAL,
    NotFound = sys::TRITONSERVER_ERROR_NOT_FOUND,
    InvalidArg = sys::TRITONSERVER_ERROR_INVALID_ARG,
    Unavailable = sys::TRITONSERVER_ERROR_UNAVAILABLE,
    Unsupported = sys::TRITONSERVER_ERROR_UNSUPPORTED,
    AlreadyExists = sys::TRITONSERVER_ERROR_ALREADY_EXISTS,
    Cancelled = sys::TRITONSERVER_ERROR_CANCELLED,
}

impl Code {
    fn from_number(number: sys::TRITONSERVER_Error_Code) -> Self {
        [
            Self::Internal,
            Self::NotFound,
            Self::InvalidArg,
            Self::Unavailable,
            Self::Unsupported,
            Self::AlreadyExists,
            Self::Cancelled,
        ]
        .into_iter()
        .find(|code| *code as i32 == number)
        .unwrap_or(Self::Unknown)
    }
}

/// An error with Triton's code and one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: Code,
    pub message: String,
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// A failure of this library itself.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// Triton's own object for this error. The receiver deletes it.
    pub(crate) fn into_raw(self) -> *mut sys::TRITONSERVER_Error {
        let message = c_string(&self.message);
        // SAFETY: Triton copies the message.
        unsafe { sys::TRITONSERVER_ErrorNew(self.code as i32, message.as_ptr()) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Convert what a function of Triton returned: null for success, else an error, which is deleted.
///
/// # Safety
/// `error` is null, or an error that Triton has just returned and that the caller owns.
pub(crate) unsafe fn check(error: *mut sys::TRITONSERVER_Error) -> Result<(), Error> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: as promised by the caller; the message lives as long as the error.
    unsafe {
        let code = Code::from_number(sys::TRITONSERVER_ErrorCode(error));
        let message = CStr::from_ptr(sys::TRITONSERVER_ErrorMessage(error));
        let message = message.to_string_lossy().into_owned();
        sys::TRITONSERVER_ErrorDelete(error);
        Err(Error { code, message })
    }
}

/// As [`check`], for failures that can only be logged.
///
/// # Safety
/// As [`check`].
pub(crate) unsafe fn check_or_log(error: *mut sys::TRITONSERVER_Error) {
    // SAFETY: as promised by the caller.
    if let Err(error) = unsafe { check(error) } {
        log(Level::Error, &format!("a call of Triton failed: {error}"));
    }
}

/// Triton's object for a result: a null pointer for success.
pub(crate) fn into_raw(result: Result<(), Error>) -> *mut sys::TRITONSERVER_Error {
    result.map_or_else(Error::into_raw, |()| ptr::null_mut())
}

/// Run the body of a function that C calls. A panic must not reach C: it is logged, and the
/// function returns `otherwise()`.
pub(crate) fn catch_panic<T>(otherwise: impl FnOnce() -> T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        log(Level::Error, "a function that Triton called panicked");
        otherwise()
    })
}

/// A C string. It ends at the first NUL of the text, because a C string cannot contain one.
pub(crate) fn c_string(text: &str) -> CString {
    let before_nul = text.split('\0').next().unwrap_or_default();
    CString::new(before_nul).unwrap_or_default()
}
