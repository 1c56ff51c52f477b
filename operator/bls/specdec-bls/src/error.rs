//! The error type of this crate. Each error is one sentence that names the cause and the fix.

use std::fmt;
use std::io;

use triton::Code;

/// Why something failed. The variant decides the client's status code and advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The model cannot be loaded: its configuration, its tokenizer or its threads.
    Load(String),
    /// The request cannot be served as it is: a field, its value and the fix.
    InvalidRequest(String),
    /// The BLS has no room for the request: it may succeed later.
    Overloaded(String),
    /// The client has cancelled the request.
    Cancelled,
    /// An engine rejected the call.
    EngineRefused(String),
    /// An engine has no room for the call: the same request may succeed later.
    EngineBusy(String),
    /// An engine's process died: the same request may succeed when the server has restarted.
    EngineDied(String),
    /// A call of Triton's interface failed.
    Triton(triton::Error),
}

impl Error {
    /// The error of a call that failed with this message.
    ///
    /// `unavailable` is true for the status code that Triton reports if one of its own queues is
    /// full. TensorRT-LLM reports a full queue with another status code, so its message is
    /// recognised.
    pub fn from_engine(message: impl Into<String>, unavailable: bool) -> Self {
        let message = message.into();
        if unavailable || message.contains("Maximum queue size of ") {
            Self::EngineBusy(message)
        } else {
            Self::EngineRefused(message)
        }
    }

    /// The error of calls in flight when the process of the engine `name` died.
    pub fn engine_died(name: &str) -> Self {
        Self::EngineDied(format!("{name}: its process ended during the call"))
    }

    /// The system refused to start a thread.
    pub fn thread(error: &io::Error) -> Self {
        Self::Load(format!(
            "tensorrt_llm_bls cannot start a thread ({error}): raise the limit of processes \
             or the memory of the server's container"
        ))
    }

    /// The sentence for the client or the log.
    pub fn message(&self) -> &str {
        match self {
            Self::Load(message)
            | Self::InvalidRequest(message)
            | Self::Overloaded(message)
            | Self::EngineRefused(message)
            | Self::EngineBusy(message)
            | Self::EngineDied(message)
            | Self::Triton(triton::Error { message, .. }) => message,
            Self::Cancelled => "the request was cancelled",
        }
    }

    /// The same error with another sentence.
    pub fn map_message(mut self, change: impl FnOnce(&str) -> String) -> Self {
        match &mut self {
            Self::Load(message)
            | Self::InvalidRequest(message)
            | Self::Overloaded(message)
            | Self::EngineRefused(message)
            | Self::EngineBusy(message)
            | Self::EngineDied(message)
            | Self::Triton(triton::Error { message, .. }) => *message = change(message),
            Self::Cancelled => {}
        }
        self
    }

    /// The status code that a client sees.
    pub fn code(&self) -> Code {
        match self {
            Self::Load(_) | Self::InvalidRequest(_) | Self::EngineRefused(_) => Code::InvalidArg,
            Self::Overloaded(_) | Self::EngineBusy(_) | Self::EngineDied(_) => Code::Unavailable,
            Self::Cancelled => Code::Cancelled,
            Self::Triton(error) => error.code,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.message())
    }
}

impl std::error::Error for Error {}

impl From<triton::Error> for Error {
    fn from(error: triton::Error) -> Self {
        Self::Triton(error)
    }
}

impl From<Error> for triton::Error {
    fn from(error: Error) -> Self {
        triton::Error::new(error.code(), error.message())
    }
}
