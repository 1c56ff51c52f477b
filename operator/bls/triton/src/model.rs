//! The properties of a model that a backend reads while Triton loads the model.

use std::marker::PhantomData;
use std::ptr;

use triton_sys as sys;

use crate::error::{Error, check, check_or_log};
use crate::memory::copy_text;
use crate::server::Server;

/// A model that Triton is loading.
pub struct Model<'a> {
    model: *mut sys::TRITONBACKEND_Model,
    _loading: PhantomData<&'a ()>,
}

impl Model<'_> {
    /// # Safety
    /// `model` is a model of Triton that outlives the result.
    pub(crate) unsafe fn new(model: *mut sys::TRITONBACKEND_Model) -> Self {
        Self {
            model,
            _loading: PhantomData,
        }
    }

    /// The name that clients use.
    ///
    /// # Errors
    /// Triton does not return it.
    pub fn name(&self) -> Result<String, Error> {
        let mut name = ptr::null();
        // SAFETY: the name lives as long as the model.
        unsafe {
            check(sys::TRITONBACKEND_ModelName(self.model, &mut name))?;
            Ok(copy_text(name))
        }
    }

    /// The version, a number.
    ///
    /// # Errors
    /// Triton does not return it.
    pub fn version(&self) -> Result<u64, Error> {
        let mut version = 0;
        // SAFETY: Triton writes one number.
        unsafe { check(sys::TRITONBACKEND_ModelVersion(self.model, &mut version))? };
        Ok(version)
    }

    /// The model's directory in the repository.
    ///
    /// # Errors
    /// Triton does not return it.
    pub fn directory(&self) -> Result<String, Error> {
        let mut kind = sys::TRITONBACKEND_ARTIFACT_FILESYSTEM;
        let mut location = ptr::null();
        // SAFETY: the text lives as long as the model.
        unsafe {
            check(sys::TRITONBACKEND_ModelRepository(
                self.model,
                &mut kind,
                &mut location,
            ))?;
            Ok(copy_text(location))
        }
    }

    /// The configuration as JSON.
    ///
    /// # Errors
    /// Triton does not return it.
    pub fn config(&self) -> Result<String, Error> {
        let mut message = ptr::null_mut();
        let (mut base, mut byte_size) = (ptr::null(), 0);
        // SAFETY: this function owns the message, and the text lives until the message is deleted.
        unsafe {
            check(sys::TRITONBACKEND_ModelConfig(self.model, 1, &mut message))?;
            let text = check(sys::TRITONSERVER_MessageSerializeToJson(
                message,
                &mut base,
                &mut byte_size,
            ))
            .map(|()| {
                let bytes = std::slice::from_raw_parts(base.cast::<u8>(), byte_size);
                String::from_utf8_lossy(bytes).into_owned()
            });
            check_or_log(sys::TRITONSERVER_MessageDelete(message));
            text
        }
    }

    /// The server that loads the model.
    ///
    /// # Errors
    /// Triton does not return it.
    pub fn server(&self) -> Result<Server, Error> {
        let mut server = ptr::null_mut();
        // SAFETY: the server outlives all of its models.
        unsafe {
            check(sys::TRITONBACKEND_ModelServer(self.model, &mut server))?;
            Server::new(server)
        }
    }
}
