//! The values of Triton's enumerations and flags that this workspace uses.
//!
//! They are integers, because a server may return a value that is not listed here.

use std::ffi::c_int;

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
    /// How a model's repository is stored. Triton only has file systems.
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
    /// Types of parameters. The labels of metrics are parameters of the type string.
    TRITONSERVER_ParameterType { TRITONSERVER_PARAMETER_STRING = 0 }
}

/// The major version of the backend interface that these declarations belong to.
pub const TRITONBACKEND_API_VERSION_MAJOR: u32 = 1;
/// Flag of a released request: the whole request is released.
pub const TRITONSERVER_REQUEST_RELEASE_ALL: u32 = 1;
/// Flag of a response: no further response follows.
pub const TRITONSERVER_RESPONSE_COMPLETE_FINAL: u32 = 1;
