//! What Triton calls: a model comes, requests come, the model goes.

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use super::bls::Bls;
use super::error::{check, failure, fine, guarded, internal, log, logged};
use super::ffi::{self, Code, Failure};
use super::infer::Server;
use super::metrics::Metrics;
use super::request::ClientRequest;
use crate::config::Settings;
use crate::tokenizer::{HubTokenizer, Special};

/// Prints a tokenizer's file where a directory has none; lies in the model's directory.
const HELPER: &str = "tokenizer_json.py";

/// Whether this server speaks the interface that the library was written for.
///
/// # Safety
/// Triton calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_Initialize(_: *mut ffi::Backend) -> Failure {
    guarded(internal, initialize)
}

fn initialize() -> Failure {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both places are ours.
    if let Err(words) = check(unsafe { ffi::TRITONBACKEND_ApiVersion(&mut major, &mut minor) }) {
        return failure(Code::Internal, &words);
    }
    if major == ffi::API_MAJOR {
        return fine();
    }
    let words = format!(
        "tensorrt_llm_bls needs major version {} of Triton's backend interface, this server has \
         {major}.{minor}: use a server of the 2.x series",
        ffi::API_MAJOR
    );
    failure(Code::Unsupported, &words)
}

/// Read the model's configuration and open its tokenizer; fails the load with one sentence.
///
/// # Safety
/// Triton calls it with a model of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInitialize(model: *mut ffi::Model) -> Failure {
    let unloaded = || failure(Code::Internal, "tensorrt_llm_bls could not be loaded");
    guarded(unloaded, || {
        // SAFETY: the model is Triton's.
        match unsafe { open(model) } {
            // SAFETY: Triton hands the state back until the model goes.
            Ok(bls) => unsafe {
                ffi::TRITONBACKEND_ModelSetState(model, Arc::into_raw(bls).cast_mut().cast())
            },
            Err(words) => failure(Code::InvalidArg, &words),
        }
    })
}

/// Let go of the model.
///
/// # Safety
/// Triton calls it once, after the model's last request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelFinalize(model: *mut ffi::Model) -> Failure {
    guarded(internal, || {
        let mut state = ptr::null_mut();
        // SAFETY: the state is what `ModelInitialize` left there.
        unsafe {
            logged(ffi::TRITONBACKEND_ModelState(model, &mut state));
            if !state.is_null() {
                Arc::from_raw(state.cast_const().cast::<Bls>()).close();
            }
        }
        fine()
    })
}

/// Start every request and return; never fails, since an error is an answer.
///
/// # Safety
/// Triton calls it with requests of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceExecute(
    instance: *mut ffi::Instance,
    requests: *mut *mut ffi::Request,
    count: u32,
) -> Failure {
    // SAFETY: as promised by the caller.
    guarded(internal, || unsafe { execute(instance, requests, count) })
}

/// # Safety
/// Instance and requests are Triton's; its model has the state of `ModelInitialize`.
unsafe fn execute(
    instance: *mut ffi::Instance,
    requests: *mut *mut ffi::Request,
    count: u32,
) -> Failure {
    let (mut model, mut state) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: as promised by the caller; the state lives as long as the model.
    let bls = unsafe {
        logged(ffi::TRITONBACKEND_ModelInstanceModel(instance, &mut model));
        logged(ffi::TRITONBACKEND_ModelState(model, &mut state));
        let kept = state.cast_const().cast::<Bls>();
        Arc::increment_strong_count(kept);
        Arc::from_raw(kept)
    };
    for place in 0..count as usize {
        // SAFETY: there are so many of them.
        let request = unsafe { *requests.add(place) };
        match ClientRequest::new(instance, request) {
            // One that fails is answered when it is dropped, and harms no other.
            Ok(request) => guarded(|| (), || bls.accept(request)),
            Err(words) => {
                log(ffi::LOG_ERROR, &words);
                // SAFETY: the request is ours, and nobody else will release it.
                logged(unsafe { ffi::TRITONBACKEND_RequestRelease(request, ffi::RELEASE_ALL) });
            }
        }
    }
    fine()
}

/// # Safety
/// The model is Triton's.
unsafe fn open(model: *mut ffi::Model) -> Result<Arc<Bls>, String> {
    let (mut name, mut place): (*const c_char, *const c_char) = (ptr::null(), ptr::null());
    let (mut version, mut kind) = (0, 0);
    // SAFETY: as promised by the caller; texts live as long as the model.
    let (config, name, place, server) = unsafe {
        check(ffi::TRITONBACKEND_ModelName(model, &mut name))?;
        check(ffi::TRITONBACKEND_ModelVersion(model, &mut version))?;
        check(ffi::TRITONBACKEND_ModelRepository(
            model, &mut kind, &mut place,
        ))?;
        let name = CStr::from_ptr(name).to_string_lossy().into_owned();
        let place = CStr::from_ptr(place).to_string_lossy().into_owned();
        (config(model)?, name, place, Server::of(model)?)
    };
    let settings = Settings::read(&config).map_err(|error| error.to_string())?;
    let special = Special {
        add: settings.add_special_tokens,
        skip: settings.skip_special_tokens,
    };
    let helper = Path::new(&place).join(HELPER);
    let tokenizer = HubTokenizer::open(&settings.tokenizer_dir, special, &helper)
        .map_err(|error| error.to_string())?;
    let metrics = Metrics::new(&name, version, settings.server.draft_tokens)?;
    Bls::new(settings, server, Arc::new(tokenizer), metrics).map_err(|error| error.to_string())
}

/// # Safety
/// The model is Triton's.
unsafe fn config(model: *mut ffi::Model) -> Result<String, String> {
    let mut message = ptr::null_mut();
    let (mut base, mut size) = (ptr::null(), 0);
    // SAFETY: the text lives until the message is deleted.
    unsafe {
        check(ffi::TRITONBACKEND_ModelConfig(model, 1, &mut message))?;
        let read = check(ffi::TRITONSERVER_MessageSerializeToJson(
            message, &mut base, &mut size,
        ));
        let text = read.map(|()| {
            let bytes = std::slice::from_raw_parts(base.cast::<u8>(), size);
            String::from_utf8_lossy(bytes).into_owned()
        });
        logged(ffi::TRITONSERVER_MessageDelete(message));
        text
    }
}
