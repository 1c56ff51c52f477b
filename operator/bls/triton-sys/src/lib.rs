//! Bindings of Triton's C interface: the part that backends and in-process inference need here.
//!
//! All names are those of Triton's headers, `tritonserver.h` and `tritonbackend.h`, which also
//! state who owns what and for how long. Both interfaces stay compatible within a major version.
#![allow(non_camel_case_types, non_snake_case)]

use std::ffi::{c_char, c_int, c_void};

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

macro_rules! enumerations {
    ($($(#[$doc:meta])* $type:ident { $($name:ident = $value:literal)* })*) => {
        $(
            $(#[$doc])*
            pub type $type = c_int;
            $(pub const $name: $type = $value;)*
        )*

        /// Every value declared here with its name, for the comparison with the headers.
        pub const ENUMERATORS: &[(&str, c_int)] = &[$($((stringify!($name), $value),)*)*];
    };
}

enumerations! {
    /// What a model's repository is; a file system is the only kind.
    TRITONBACKEND_ArtifactType { TRITONBACKEND_ARTIFACT_FILESYSTEM = 0 }
    /// Element types of tensors.
    TRITONSERVER_DataType {
        TRITONSERVER_TYPE_INVALID = 0
        TRITONSERVER_TYPE_BOOL = 1
        TRITONSERVER_TYPE_UINT8 = 2
        TRITONSERVER_TYPE_UINT16 = 3
        TRITONSERVER_TYPE_UINT32 = 4
        TRITONSERVER_TYPE_UINT64 = 5
        TRITONSERVER_TYPE_INT8 = 6
        TRITONSERVER_TYPE_INT16 = 7
        TRITONSERVER_TYPE_INT32 = 8
        TRITONSERVER_TYPE_INT64 = 9
        TRITONSERVER_TYPE_FP16 = 10
        TRITONSERVER_TYPE_FP32 = 11
        TRITONSERVER_TYPE_FP64 = 12
        TRITONSERVER_TYPE_BYTES = 13
        TRITONSERVER_TYPE_BF16 = 14
    }
    /// Error codes, which clients see as status codes.
    TRITONSERVER_Error_Code {
        TRITONSERVER_ERROR_UNKNOWN = 0
        TRITONSERVER_ERROR_INTERNAL = 1
        TRITONSERVER_ERROR_NOT_FOUND = 2
        TRITONSERVER_ERROR_INVALID_ARG = 3
        TRITONSERVER_ERROR_UNAVAILABLE = 4
        TRITONSERVER_ERROR_UNSUPPORTED = 5
        TRITONSERVER_ERROR_ALREADY_EXISTS = 6
        TRITONSERVER_ERROR_CANCELLED = 7
    }
    /// Levels of the server's log.
    TRITONSERVER_LogLevel {
        TRITONSERVER_LOG_INFO = 0
        TRITONSERVER_LOG_WARN = 1
        TRITONSERVER_LOG_ERROR = 2
    }
    /// Where a buffer is.
    TRITONSERVER_MemoryType {
        TRITONSERVER_MEMORY_CPU = 0
        TRITONSERVER_MEMORY_CPU_PINNED = 1
        TRITONSERVER_MEMORY_GPU = 2
    }
    /// Kinds of metric families.
    TRITONSERVER_MetricKind {
        TRITONSERVER_METRIC_KIND_COUNTER = 0
        TRITONSERVER_METRIC_KIND_GAUGE = 1
    }
    /// Types of parameters; labels of metrics are strings.
    TRITONSERVER_ParameterType { TRITONSERVER_PARAMETER_STRING = 0 }
}

/// The major version of the backend interface that these declarations belong to.
pub const TRITONBACKEND_API_VERSION_MAJOR: u32 = 1;
/// Flag of a released request: the whole request is released.
pub const TRITONSERVER_REQUEST_RELEASE_ALL: u32 = 1;
/// Flag of a response: none follows.
pub const TRITONSERVER_RESPONSE_COMPLETE_FINAL: u32 = 1;

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

/// Expands `$callback!` with every function of Triton that this workspace calls.
///
/// This list is the only declaration of them: the bindings below, the comparison with the headers
/// and the simulated server of the tests are all made from it.
#[macro_export]
macro_rules! for_each_function {
    ($callback:ident) => {
        $callback! {
            // The model and its instance.
            fn TRITONBACKEND_ApiVersion(
                major: *mut u32,
                minor: *mut u32,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelName(
                model: *mut TRITONBACKEND_Model,
                name: *mut *const c_char,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelVersion(
                model: *mut TRITONBACKEND_Model,
                version: *mut u64,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelRepository(
                model: *mut TRITONBACKEND_Model,
                artifact_type: *mut TRITONBACKEND_ArtifactType,
                location: *mut *const c_char,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelConfig(
                model: *mut TRITONBACKEND_Model,
                config_version: u32,
                model_config: *mut *mut TRITONSERVER_Message,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelServer(
                model: *mut TRITONBACKEND_Model,
                server: *mut *mut TRITONSERVER_Server,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelState(
                model: *mut TRITONBACKEND_Model,
                state: *mut *mut c_void,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelSetState(
                model: *mut TRITONBACKEND_Model,
                state: *mut c_void,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelInstanceModel(
                instance: *mut TRITONBACKEND_ModelInstance,
                model: *mut *mut TRITONBACKEND_Model,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelInstanceReportStatistics(
                instance: *mut TRITONBACKEND_ModelInstance,
                request: *mut TRITONBACKEND_Request,
                success: bool,
                exec_start_ns: u64,
                compute_start_ns: u64,
                compute_end_ns: u64,
                exec_end_ns: u64,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelInstanceReportBatchStatistics(
                instance: *mut TRITONBACKEND_ModelInstance,
                batch_size: u64,
                exec_start_ns: u64,
                compute_start_ns: u64,
                compute_end_ns: u64,
                exec_end_ns: u64,
            ) -> *mut TRITONSERVER_Error;
            // A client's request and its responses.
            fn TRITONBACKEND_RequestInputCount(
                request: *mut TRITONBACKEND_Request,
                count: *mut u32,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_RequestInputByIndex(
                request: *mut TRITONBACKEND_Request,
                index: u32,
                input: *mut *mut TRITONBACKEND_Input,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_InputProperties(
                input: *mut TRITONBACKEND_Input,
                name: *mut *const c_char,
                datatype: *mut TRITONSERVER_DataType,
                shape: *mut *const i64,
                dims_count: *mut u32,
                byte_size: *mut u64,
                buffer_count: *mut u32,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_InputBuffer(
                input: *mut TRITONBACKEND_Input,
                index: u32,
                buffer: *mut *const c_void,
                buffer_byte_size: *mut u64,
                memory_type: *mut TRITONSERVER_MemoryType,
                memory_type_id: *mut i64,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_RequestOutputCount(
                request: *mut TRITONBACKEND_Request,
                count: *mut u32,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_RequestOutputName(
                request: *mut TRITONBACKEND_Request,
                index: u32,
                output_name: *mut *const c_char,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_RequestRelease(
                request: *mut TRITONBACKEND_Request,
                release_flags: u32,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ResponseFactoryNew(
                factory: *mut *mut TRITONBACKEND_ResponseFactory,
                request: *mut TRITONBACKEND_Request,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ResponseFactoryDelete(
                factory: *mut TRITONBACKEND_ResponseFactory,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ResponseFactorySendFlags(
                factory: *mut TRITONBACKEND_ResponseFactory,
                send_flags: u32,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ResponseFactoryIsCancelled(
                factory: *mut TRITONBACKEND_ResponseFactory,
                is_cancelled: *mut bool,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ResponseNewFromFactory(
                response: *mut *mut TRITONBACKEND_Response,
                factory: *mut TRITONBACKEND_ResponseFactory,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ResponseOutput(
                response: *mut TRITONBACKEND_Response,
                output: *mut *mut TRITONBACKEND_Output,
                name: *const c_char,
                datatype: TRITONSERVER_DataType,
                shape: *const i64,
                dims_count: u32,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_OutputBuffer(
                output: *mut TRITONBACKEND_Output,
                buffer: *mut *mut c_void,
                buffer_byte_size: u64,
                memory_type: *mut TRITONSERVER_MemoryType,
                memory_type_id: *mut i64,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ResponseSend(
                response: *mut TRITONBACKEND_Response,
                send_flags: u32,
                error: *mut TRITONSERVER_Error,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ResponseDelete(
                response: *mut TRITONBACKEND_Response,
            ) -> *mut TRITONSERVER_Error;
            // Errors, the log, messages.
            fn TRITONSERVER_ErrorNew(
                code: TRITONSERVER_Error_Code,
                msg: *const c_char,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_ErrorDelete(error: *mut TRITONSERVER_Error);
            fn TRITONSERVER_ErrorCode(error: *mut TRITONSERVER_Error) -> TRITONSERVER_Error_Code;
            fn TRITONSERVER_ErrorMessage(error: *mut TRITONSERVER_Error) -> *const c_char;
            fn TRITONSERVER_LogMessage(
                level: TRITONSERVER_LogLevel,
                filename: *const c_char,
                line: c_int,
                msg: *const c_char,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_MessageSerializeToJson(
                message: *mut TRITONSERVER_Message,
                base: *mut *const c_char,
                byte_size: *mut usize,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_MessageDelete(
                message: *mut TRITONSERVER_Message,
            ) -> *mut TRITONSERVER_Error;
            // Inference requests to other models of the server.
            fn TRITONSERVER_ResponseAllocatorNew(
                allocator: *mut *mut TRITONSERVER_ResponseAllocator,
                alloc_fn: TRITONSERVER_ResponseAllocatorAllocFn_t,
                release_fn: TRITONSERVER_ResponseAllocatorReleaseFn_t,
                start_fn: TRITONSERVER_ResponseAllocatorStartFn_t,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_ResponseAllocatorDelete(
                allocator: *mut TRITONSERVER_ResponseAllocator,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_InferenceRequestNew(
                inference_request: *mut *mut TRITONSERVER_InferenceRequest,
                server: *mut TRITONSERVER_Server,
                model_name: *const c_char,
                model_version: i64,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_InferenceRequestDelete(
                inference_request: *mut TRITONSERVER_InferenceRequest,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_InferenceRequestAddInput(
                inference_request: *mut TRITONSERVER_InferenceRequest,
                name: *const c_char,
                datatype: TRITONSERVER_DataType,
                shape: *const i64,
                dim_count: u64,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_InferenceRequestAppendInputData(
                inference_request: *mut TRITONSERVER_InferenceRequest,
                name: *const c_char,
                base: *const c_void,
                byte_size: usize,
                memory_type: TRITONSERVER_MemoryType,
                memory_type_id: i64,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_InferenceRequestAddRequestedOutput(
                inference_request: *mut TRITONSERVER_InferenceRequest,
                name: *const c_char,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_InferenceRequestSetReleaseCallback(
                inference_request: *mut TRITONSERVER_InferenceRequest,
                request_release_fn: TRITONSERVER_InferenceRequestReleaseFn_t,
                request_release_userp: *mut c_void,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_InferenceRequestSetResponseCallback(
                inference_request: *mut TRITONSERVER_InferenceRequest,
                response_allocator: *mut TRITONSERVER_ResponseAllocator,
                response_allocator_userp: *mut c_void,
                response_fn: TRITONSERVER_InferenceResponseCompleteFn_t,
                response_userp: *mut c_void,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_InferenceRequestCancel(
                inference_request: *mut TRITONSERVER_InferenceRequest,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_ServerInferAsync(
                server: *mut TRITONSERVER_Server,
                inference_request: *mut TRITONSERVER_InferenceRequest,
                trace: *mut TRITONSERVER_InferenceTrace,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_InferenceResponseError(
                inference_response: *mut TRITONSERVER_InferenceResponse,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_InferenceResponseOutputCount(
                inference_response: *mut TRITONSERVER_InferenceResponse,
                count: *mut u32,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_InferenceResponseOutput(
                inference_response: *mut TRITONSERVER_InferenceResponse,
                index: u32,
                name: *mut *const c_char,
                datatype: *mut TRITONSERVER_DataType,
                shape: *mut *const i64,
                dim_count: *mut u64,
                base: *mut *const c_void,
                byte_size: *mut usize,
                memory_type: *mut TRITONSERVER_MemoryType,
                memory_type_id: *mut i64,
                userp: *mut *mut c_void,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_InferenceResponseDelete(
                inference_response: *mut TRITONSERVER_InferenceResponse,
            ) -> *mut TRITONSERVER_Error;
            // Metrics.
            fn TRITONSERVER_ParameterNew(
                name: *const c_char,
                kind: TRITONSERVER_ParameterType,
                value: *const c_void,
            ) -> *mut TRITONSERVER_Parameter;
            fn TRITONSERVER_ParameterDelete(parameter: *mut TRITONSERVER_Parameter);
            fn TRITONSERVER_MetricFamilyNew(
                family: *mut *mut TRITONSERVER_MetricFamily,
                kind: TRITONSERVER_MetricKind,
                name: *const c_char,
                description: *const c_char,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_MetricFamilyDelete(
                family: *mut TRITONSERVER_MetricFamily,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_MetricNew(
                metric: *mut *mut TRITONSERVER_Metric,
                family: *mut TRITONSERVER_MetricFamily,
                labels: *mut *const TRITONSERVER_Parameter,
                label_count: u64,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_MetricDelete(
                metric: *mut TRITONSERVER_Metric,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_MetricIncrement(
                metric: *mut TRITONSERVER_Metric,
                value: f64,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONSERVER_MetricSet(
                metric: *mut TRITONSERVER_Metric,
                value: f64,
            ) -> *mut TRITONSERVER_Error;
        }
    };
}

macro_rules! declare {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        unsafe extern "C" {
            $(pub fn $name($($argument: $type),*) $(-> $result)?;)*
        }
    };
}

for_each_function!(declare);
