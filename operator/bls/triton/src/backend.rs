//! The functions that Triton calls in a backend, for any implementation of [`Backend`].
//!
//! [`export_backend!`](crate::export_backend) exports them under Triton's names. They convert
//! Triton's pointers, and no panic leaves them.

use std::ptr;
use std::sync::Arc;

use triton_sys as sys;

use crate::error::{Code, Error, catch_panic, check, check_or_log, into_raw};
use crate::log::{Level, log};
use crate::model::Model;
use crate::request::Request;

/// A backend. A value of this type is one loaded model.
pub trait Backend: Send + Sync + Sized + 'static {
    /// The model's name in messages.
    const NAME: &'static str;

    /// Load a model.
    ///
    /// # Errors
    /// Why it cannot be served; the load fails with this error.
    fn load(model: &Model<'_>) -> Result<Arc<Self>, Error>;

    /// Take over a request. Its responses may be sent later, from any thread. Dropping a request
    /// that was not released sends its client an error.
    fn accept(self: &Arc<Self>, request: Request);

    /// Note that this many requests have arrived. [`Backend::accept`] follows for each of them.
    fn announce(&self, _requests: usize) {}

    /// Take over requests that Triton has batched. If one of them causes a panic, that request is
    /// dropped, and the others continue.
    fn accept_batch(self: &Arc<Self>, requests: Vec<Request>) {
        self.announce(requests.len());
        for request in requests {
            catch_panic(|| (), || self.accept(request));
        }
    }

    /// Unload the model. All of its requests have been answered.
    fn unload(&self);
}

/// Export a [`Backend`] under the names that Triton loads.
#[macro_export]
macro_rules! export_backend {
    ($backend:ty) => {
        /// Check the server's version, when Triton has loaded the library.
        ///
        /// # Safety
        /// Triton calls it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn TRITONBACKEND_Initialize(
            _: *mut ::triton_sys::TRITONBACKEND_Backend,
        ) -> *mut ::triton_sys::TRITONSERVER_Error {
            $crate::backend::initialize::<$backend>()
        }

        /// Load a model.
        ///
        /// # Safety
        /// Triton calls it with a model of its own.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn TRITONBACKEND_ModelInitialize(
            model: *mut ::triton_sys::TRITONBACKEND_Model,
        ) -> *mut ::triton_sys::TRITONSERVER_Error {
            // SAFETY: as promised by Triton.
            unsafe { $crate::backend::load::<$backend>(model) }
        }

        /// Unload a model.
        ///
        /// # Safety
        /// Triton calls it once, after the model's last request.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn TRITONBACKEND_ModelFinalize(
            model: *mut ::triton_sys::TRITONBACKEND_Model,
        ) -> *mut ::triton_sys::TRITONSERVER_Error {
            // SAFETY: as promised by Triton.
            unsafe { $crate::backend::unload::<$backend>(model) }
        }

        /// Take over requests. It never fails: an error becomes a response to its request.
        ///
        /// # Safety
        /// Triton calls it with requests of its own.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceExecute(
            instance: *mut ::triton_sys::TRITONBACKEND_ModelInstance,
            requests: *mut *mut ::triton_sys::TRITONBACKEND_Request,
            count: u32,
        ) -> *mut ::triton_sys::TRITONSERVER_Error {
            // SAFETY: as promised by Triton.
            unsafe { $crate::backend::execute::<$backend>(instance, requests, count) }
        }
    };
}

/// Check that the server has the interface that these bindings declare.
pub fn initialize<B: Backend>() -> *mut sys::TRITONSERVER_Error {
    catch_panic(failed::<B>, || into_raw(check_version::<B>()))
}

fn check_version<B: Backend>() -> Result<(), Error> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: Triton writes two numbers.
    unsafe { check(sys::TRITONBACKEND_ApiVersion(&mut major, &mut minor))? };
    let needed = sys::TRITONBACKEND_API_VERSION_MAJOR;
    if major == needed {
        return Ok(());
    }
    Err(Error::new(
        Code::Unsupported,
        format!(
            "{} needs major version {needed} of Triton's backend interface, this server has \
             {major}.{minor}: use a server of the 2.x series",
            B::NAME
        ),
    ))
}

fn failed<B: Backend>() -> *mut sys::TRITONSERVER_Error {
    let message = format!("{} failed: the server's log has the details", B::NAME);
    Error::internal(message).into_raw()
}

/// Load a model, and store the backend's value as Triton's state of that model.
///
/// # Safety
/// `model` is a model of Triton without a state.
pub unsafe fn load<B: Backend>(
    model: *mut sys::TRITONBACKEND_Model,
) -> *mut sys::TRITONSERVER_Error {
    catch_panic(failed::<B>, || {
        // SAFETY: as promised by the caller. Triton keeps the state until the model is unloaded.
        let loaded = unsafe {
            B::load(&Model::new(model)).and_then(|backend| {
                let state = Arc::into_raw(backend).cast_mut();
                check(sys::TRITONBACKEND_ModelSetState(model, state.cast()))
            })
        };
        into_raw(loaded)
    })
}

/// Unload a model.
///
/// # Safety
/// `model` has been given to [`load`] of the same backend, and has no request.
pub unsafe fn unload<B: Backend>(
    model: *mut sys::TRITONBACKEND_Model,
) -> *mut sys::TRITONSERVER_Error {
    catch_panic(failed::<B>, || {
        let mut state = ptr::null_mut();
        // SAFETY: as promised by the caller; the state is null where the load failed.
        unsafe {
            check_or_log(sys::TRITONBACKEND_ModelState(model, &mut state));
            if !state.is_null() {
                Arc::from_raw(state.cast_const().cast::<B>()).unload();
            }
        }
        ptr::null_mut()
    })
}

/// Hand requests to the backend.
///
/// # Safety
/// `requests` points to `count` requests of Triton for a model that [`load`] has loaded.
pub unsafe fn execute<B: Backend>(
    instance: *mut sys::TRITONBACKEND_ModelInstance,
    requests: *mut *mut sys::TRITONBACKEND_Request,
    count: u32,
) -> *mut sys::TRITONSERVER_Error {
    catch_panic(failed::<B>, || {
        let (mut model, mut state) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: as promised by the caller; the state lives as long as the model.
        let (backend, requests) = unsafe {
            check_or_log(sys::TRITONBACKEND_ModelInstanceModel(instance, &mut model));
            check_or_log(sys::TRITONBACKEND_ModelState(model, &mut state));
            let state = state.cast_const().cast::<B>();
            Arc::increment_strong_count(state);
            let requests = std::slice::from_raw_parts(requests, count as usize);
            (Arc::from_raw(state), requests)
        };
        let requests = requests.iter().filter_map(|request| {
            // SAFETY: as promised by the caller; Triton hands each request over once.
            let request = unsafe { Request::new(B::NAME, instance, *request) };
            request
                .inspect_err(|error| log(Level::Error, &error.message))
                .ok()
        });
        backend.accept_batch(requests.collect());
        ptr::null_mut()
    })
}
