//! The server that this library runs in, for calls of its other models.

use std::ptr;

use triton_sys as sys;

use crate::allocator::{allocate, free, query};
use crate::error::{Error, check, check_or_log};

/// The server, and the allocator for the outputs of the models that are called.
pub struct Server {
    pub(crate) server: *mut sys::TRITONSERVER_Server,
    pub(crate) allocator: *mut sys::TRITONSERVER_ResponseAllocator,
}

// SAFETY: Triton allows the use of both objects from any thread.
unsafe impl Send for Server {}
// SAFETY: as above; nothing here changes either object.
unsafe impl Sync for Server {}

impl Server {
    /// Wrap a server and register this library's allocator.
    ///
    /// # Safety
    /// `server` is a server of Triton that outlives the result.
    pub(crate) unsafe fn new(server: *mut sys::TRITONSERVER_Server) -> Result<Self, Error> {
        let mut allocator = ptr::null_mut();
        // SAFETY: the functions are those of this library, which outlives the allocator.
        unsafe {
            check(sys::TRITONSERVER_ResponseAllocatorNew(
                &mut allocator,
                Some(allocate),
                Some(free),
                None,
            ))?;
        }
        let server = Self { server, allocator };
        // SAFETY: as above.
        unsafe {
            check(sys::TRITONSERVER_ResponseAllocatorSetQueryFunction(
                allocator,
                Some(query),
            ))?;
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: Triton unloads a model after the last of its calls.
        unsafe { check_or_log(sys::TRITONSERVER_ResponseAllocatorDelete(self.allocator)) };
    }
}
