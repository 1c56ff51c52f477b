//! A macro with the functions of Triton with which the library calls an engine. `triton.rs` expands
//! it in `impl Simulation for Server`.

macro_rules! call_functions {
    () => {
        unsafe fn TRITONSERVER_ResponseAllocatorNew(
            _: *mut *mut TRITONSERVER_ResponseAllocator,
            allocate: TRITONSERVER_ResponseAllocatorAllocFn_t,
            free: TRITONSERVER_ResponseAllocatorReleaseFn_t,
            _: TRITONSERVER_ResponseAllocatorStartFn_t,
        ) -> *mut TRITONSERVER_Error {
            let mut allocator = ALLOCATOR.lock().unwrap();
            (allocator.allocate, allocator.free) = (allocate, free);
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_ResponseAllocatorSetQueryFunction(
            _: *mut TRITONSERVER_ResponseAllocator,
            query: TRITONSERVER_ResponseAllocatorQueryFn_t,
        ) -> *mut TRITONSERVER_Error {
            ALLOCATOR.lock().unwrap().query = query;
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_InferenceRequestNew(
            request: *mut *mut TRITONSERVER_InferenceRequest,
            _: *mut TRITONSERVER_Server,
            _: *const c_char,
            _: i64,
        ) -> *mut TRITONSERVER_Error {
            unsafe { *request = Box::into_raw(Box::<Call>::default()).cast() };
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_InferenceRequestDelete(
            request: *mut TRITONSERVER_InferenceRequest,
        ) -> *mut TRITONSERVER_Error {
            drop(unsafe { Box::from_raw(request.cast::<Call>()) });
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_InferenceRequestAppendInputData(
            request: *mut TRITONSERVER_InferenceRequest,
            name: *const c_char,
            base: *const c_void,
            size: usize,
            _: TRITONSERVER_MemoryType,
            _: i64,
        ) -> *mut TRITONSERVER_Error {
            unsafe { (*request.cast::<Call>()).add(name, base, size) };
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_InferenceRequestSetReleaseCallback(
            request: *mut TRITONSERVER_InferenceRequest,
            release: TRITONSERVER_InferenceRequestReleaseFn_t,
            userp: *mut c_void,
        ) -> *mut TRITONSERVER_Error {
            unsafe { (*request.cast::<Call>()).on_release(release, userp) };
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_InferenceRequestSetResponseCallback(
            request: *mut TRITONSERVER_InferenceRequest,
            _: *mut TRITONSERVER_ResponseAllocator,
            _: *mut c_void,
            respond: TRITONSERVER_InferenceResponseCompleteFn_t,
            userp: *mut c_void,
        ) -> *mut TRITONSERVER_Error {
            unsafe { (*request.cast::<Call>()).on_response(respond, userp) };
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_ServerInferAsync(
            _: *mut TRITONSERVER_Server,
            request: *mut TRITONSERVER_InferenceRequest,
            _: *mut TRITONSERVER_InferenceTrace,
        ) -> *mut TRITONSERVER_Error {
            let Some(place) = *ENGINE.lock().unwrap() else {
                return failure(TRITONSERVER_ERROR_UNAVAILABLE, "Exceeds maximum queue size");
            };
            engine::start(request.cast(), place);
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_InferenceRequestCancel(
            request: *mut TRITONSERVER_InferenceRequest,
        ) -> *mut TRITONSERVER_Error {
            unsafe { &*request.cast::<Call>() }.cancel();
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_InferenceResponseOutputCount(
            response: *mut TRITONSERVER_InferenceResponse,
            count: *mut u32,
        ) -> *mut TRITONSERVER_Error {
            unsafe { *count = engine::count(response) };
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_InferenceResponseOutput(
            response: *mut TRITONSERVER_InferenceResponse,
            index: u32,
            name: *mut *const c_char,
            kind: *mut TRITONSERVER_DataType,
            shape: *mut *const i64,
            dimensions: *mut u64,
            base: *mut *const c_void,
            size: *mut usize,
            memory: *mut TRITONSERVER_MemoryType,
            _: *mut i64,
            userp: *mut *mut c_void,
        ) -> *mut TRITONSERVER_Error {
            unsafe {
                let output = engine::described(response, index);
                (*name, *kind) = (output.0.as_ptr(), TRITONSERVER_TYPE_INT32);
                (*shape, *dimensions) = (output.1.cast(), output.1.len() as u64);
                (*base, *size, *memory, *userp) = (output.2, output.3, output.4, output.5);
            }
            ptr::null_mut()
        }

        unsafe fn TRITONSERVER_InferenceResponseDelete(
            response: *mut TRITONSERVER_InferenceResponse,
        ) -> *mut TRITONSERVER_Error {
            unsafe { engine::delete(response) };
            ptr::null_mut()
        }
    };
}
