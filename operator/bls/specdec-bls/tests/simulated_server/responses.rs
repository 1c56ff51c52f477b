//! A macro with the functions of Triton with which the library responds to clients. `triton.rs`
//! expands it in `impl Simulation for Server`.

macro_rules! response_functions {
    () => {
        unsafe fn TRITONBACKEND_RequestOutputCount(
            _: *mut TRITONBACKEND_Request,
            count: *mut u32,
        ) -> *mut TRITONSERVER_Error {
            unsafe { *count = 1 };
            ptr::null_mut()
        }

        unsafe fn TRITONBACKEND_RequestOutputName(
            _: *mut TRITONBACKEND_Request,
            _: u32,
            name: *mut *const c_char,
        ) -> *mut TRITONSERVER_Error {
            unsafe { *name = c"text_output".as_ptr() };
            ptr::null_mut()
        }

        unsafe fn TRITONBACKEND_ResponseOutput(
            response: *mut TRITONBACKEND_Response,
            output: *mut *mut TRITONBACKEND_Output,
            _: *const c_char,
            _: TRITONSERVER_DataType,
            _: *const i64,
            _: u32,
        ) -> *mut TRITONSERVER_Error {
            unsafe { *output = response.cast() };
            ptr::null_mut()
        }

        unsafe fn TRITONBACKEND_OutputBuffer(
            output: *mut TRITONBACKEND_Output,
            buffer: *mut *mut c_void,
            size: u64,
            memory: *mut TRITONSERVER_MemoryType,
            _: *mut i64,
        ) -> *mut TRITONSERVER_Error {
            unsafe {
                let request = &*output.cast::<ClientRequest>();
                let mut bytes = vec![0; size as usize];
                *buffer = match request.output_memory {
                    TRITONSERVER_MEMORY_GPU => GPU_ADDRESS.cast_mut(),
                    _ => bytes.as_mut_ptr().cast(),
                };
                *memory = request.output_memory;
                request.outputs.lock().unwrap().push(bytes);
            }
            ptr::null_mut()
        }

        unsafe fn TRITONBACKEND_RequestRelease(
            _: *mut TRITONBACKEND_Request,
            _: u32,
        ) -> *mut TRITONSERVER_Error {
            RELEASED.fetch_add(1, Ordering::SeqCst);
            ptr::null_mut()
        }

        unsafe fn TRITONBACKEND_ResponseFactoryNew(
            factory: *mut *mut TRITONBACKEND_ResponseFactory,
            request: *mut TRITONBACKEND_Request,
        ) -> *mut TRITONSERVER_Error {
            unsafe { *factory = request.cast() };
            ptr::null_mut()
        }

        unsafe fn TRITONBACKEND_ResponseFactoryIsCancelled(
            factory: *mut TRITONBACKEND_ResponseFactory,
            cancelled: *mut bool,
        ) -> *mut TRITONSERVER_Error {
            unsafe { *cancelled = (&*factory.cast::<ClientRequest>()).cancelled };
            ptr::null_mut()
        }

        unsafe fn TRITONBACKEND_ResponseNewFromFactory(
            response: *mut *mut TRITONBACKEND_Response,
            factory: *mut TRITONBACKEND_ResponseFactory,
        ) -> *mut TRITONSERVER_Error {
            unsafe { *response = factory.cast() };
            ptr::null_mut()
        }

        unsafe fn TRITONBACKEND_ResponseSend(
            response: *mut TRITONBACKEND_Response,
            _: u32,
            error: *mut TRITONSERVER_Error,
        ) -> *mut TRITONSERVER_Error {
            unsafe {
                let reply = error.cast::<Failure>().as_ref().map(|failure| {
                    let message = failure.message.to_string_lossy().into_owned();
                    (failure.code, message)
                });
                let _ = (&*response.cast::<ClientRequest>()).replies.send(reply);
            }
            ptr::null_mut()
        }
    };
}
