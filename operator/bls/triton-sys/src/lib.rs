//! Bindings of Triton's C interface, limited to what this workspace calls.
//!
//! They are written by hand, and tests compare them with Triton's headers. All names are those of
//! `tritonserver.h` and `tritonbackend.h`, which also document ownership and lifetimes. Both
//! interfaces stay compatible within a major version.
#![allow(non_camel_case_types, non_snake_case)]

mod enumerations;
mod functions;

use std::ffi::{c_char, c_int, c_void};

pub use enumerations::*;

macro_rules! opaque_types {
    ($($name:ident)*) => {$(
        /// An object that Triton owns; only pointers to it exist here.
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque_types! {
    TRITONBACKEND_Backend
    TRITONBACKEND_Input
    TRITONBACKEND_Model
    TRITONBACKEND_ModelInstance
    TRITONBACKEND_Output
    TRITONBACKEND_Request
    TRITONBACKEND_Response
    TRITONBACKEND_ResponseFactory
    TRITONSERVER_Error
    TRITONSERVER_InferenceRequest
    TRITONSERVER_InferenceResponse
    TRITONSERVER_InferenceTrace
    TRITONSERVER_Message
    TRITONSERVER_Metric
    TRITONSERVER_MetricFamily
    TRITONSERVER_Parameter
    TRITONSERVER_ResponseAllocator
    TRITONSERVER_Server
}

pub type TRITONSERVER_ResponseAllocatorAllocFn_t = Option<
    unsafe extern "C" fn(
        allocator: *mut TRITONSERVER_ResponseAllocator,
        tensor_name: *const c_char,
        byte_size: usize,
        memory_type: TRITONSERVER_MemoryType,
        memory_type_id: i64,
        userp: *mut c_void,
        buffer: *mut *mut c_void,
        buffer_userp: *mut *mut c_void,
        actual_memory_type: *mut TRITONSERVER_MemoryType,
        actual_memory_type_id: *mut i64,
    ) -> *mut TRITONSERVER_Error,
>;
pub type TRITONSERVER_ResponseAllocatorReleaseFn_t = Option<
    unsafe extern "C" fn(
        allocator: *mut TRITONSERVER_ResponseAllocator,
        buffer: *mut c_void,
        buffer_userp: *mut c_void,
        byte_size: usize,
        memory_type: TRITONSERVER_MemoryType,
        memory_type_id: i64,
    ) -> *mut TRITONSERVER_Error,
>;
pub type TRITONSERVER_ResponseAllocatorStartFn_t = Option<
    unsafe extern "C" fn(
        allocator: *mut TRITONSERVER_ResponseAllocator,
        userp: *mut c_void,
    ) -> *mut TRITONSERVER_Error,
>;
pub type TRITONSERVER_ResponseAllocatorQueryFn_t = Option<
    unsafe extern "C" fn(
        allocator: *mut TRITONSERVER_ResponseAllocator,
        userp: *mut c_void,
        tensor_name: *const c_char,
        byte_size: *mut usize,
        memory_type: *mut TRITONSERVER_MemoryType,
        memory_type_id: *mut i64,
    ) -> *mut TRITONSERVER_Error,
>;
pub type TRITONSERVER_InferenceRequestReleaseFn_t = Option<
    unsafe extern "C" fn(
        request: *mut TRITONSERVER_InferenceRequest,
        flags: u32,
        userp: *mut c_void,
    ),
>;
pub type TRITONSERVER_InferenceResponseCompleteFn_t = Option<
    unsafe extern "C" fn(
        response: *mut TRITONSERVER_InferenceResponse,
        flags: u32,
        userp: *mut c_void,
    ),
>;

macro_rules! declare {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        unsafe extern "C" {
            $(pub fn $name($($argument: $type),*) $(-> $result)?;)*
        }
    };
}

for_each_function!(declare);
