//! Triton's errors as Rust's, and its log.

use std::ffi::{CStr, CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::ffi::{self, Code, Failure};
use crate::engine::EngineError;

/// What a client is told of a failure of this library's own.
pub const INTERNAL: &str =
    "tensorrt_llm_bls failed on this request: the server's log has the details";

/// Text for Triton; what stands behind a NUL, which C cannot hold, is left out.
pub fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// What a call of Triton's refused, in its own words.
pub fn check(failure: Failure) -> Result<(), String> {
    if failure.is_null() {
        return Ok(());
    }
    // SAFETY: an error is ours to read and to delete once.
    let words = unsafe {
        let words = CStr::from_ptr(ffi::TRITONSERVER_ErrorMessage(failure));
        let words = words.to_string_lossy().into_owned();
        ffi::TRITONSERVER_ErrorDelete(failure);
        words
    };
    Err(words)
}

/// What an engine, or its queue in Triton, refused.
pub fn check_engine(failure: Failure) -> Result<(), EngineError> {
    // SAFETY: an error that there is is ours to read.
    let unavailable = !failure.is_null()
        && unsafe { ffi::TRITONSERVER_ErrorCode(failure) } == Code::Unavailable as c_int;
    check(failure).map_err(|words| EngineError::said(words, unavailable))
}

/// Run what C has called; a panic, which must not reach C, is logged and gives `otherwise`.
pub fn guarded<T>(otherwise: impl FnOnce() -> T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        log(ffi::LOG_ERROR, INTERNAL);
        otherwise()
    })
}

/// The error of an entry that failed on its own.
pub fn internal() -> Failure {
    failure(Code::Internal, INTERNAL)
}

/// An error to hand to Triton, which takes it over.
pub fn failure(code: Code, words: &str) -> Failure {
    // SAFETY: the words are copied.
    unsafe { ffi::TRITONSERVER_ErrorNew(code as c_int, c_text(words).as_ptr()) }
}

/// Nothing went wrong.
pub fn fine() -> Failure {
    ptr::null_mut()
}

/// A line in the server's log.
pub fn log(level: c_int, words: &str) {
    let file = c"speculation";
    // SAFETY: file and words are copied. A log that cannot be written has nowhere to say so.
    let _ = check(unsafe {
        ffi::TRITONSERVER_LogMessage(level, file.as_ptr(), 0, c_text(words).as_ptr())
    });
}

/// Log what Triton refused where nobody could be told.
pub fn logged(failure: Failure) {
    if let Err(words) = check(failure) {
        log(ffi::LOG_ERROR, &format!("tensorrt_llm_bls: {words}"));
    }
}
