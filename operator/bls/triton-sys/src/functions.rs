//! The list of Triton's functions that this workspace calls. The list is a macro that passes the
//! functions to another macro.

/// Expands `$callback!` with every function of Triton that this workspace calls.
///
/// The functions are declared nowhere else. The bindings, the comparison with the headers and the
/// simulated server of the tests all expand this list.
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
            fn TRITONBACKEND_RequestId(
                request: *mut TRITONBACKEND_Request,
                id: *mut *const c_char,
            ) -> *mut TRITONSERVER_Error;
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
            fn TRITONSERVER_ResponseAllocatorSetQueryFunction(
                allocator: *mut TRITONSERVER_ResponseAllocator,
                query_fn: TRITONSERVER_ResponseAllocatorQueryFn_t,
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
