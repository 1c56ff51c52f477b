"""Errors of the endpoint in OpenAI's shape: one sentence, with a type, a code and a parameter."""

import json
from typing import Any

from specdec.api.text import cut, line

INVALID = "invalid_request_error"
CONTEXT_LENGTH = "context_length_exceeded"
# OpenAI's wording, by which LiteLLM recognizes the error. LangChain does by "prompt is too long".
_CONTEXT = "maximum context length is "
# Parts of the messages by which models and servers report a prompt that is too long.
_LONG_PROMPT = (
    *("for a prompt", "exceeds maximum input length", "exceeds max sequence length"),
    *("maximum model length of ", _CONTEXT),
)


class ApiError(Exception):
    """A request that is not answered as requested.

    Attributes:
        status: of HTTP.
        kind: the field `type` of the body.
        code, param: further fields of the body, for programs; None if there is none.
        close: the connection ends with the response, and the rest of the body is not read.
        named: the API of the request names the types of its objects and of its events.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = INVALID,
        code: str | None = None,
        param: str | None = None,
        close: bool = False,
    ) -> None:
        # The message may quote a client, a template or the server, with any characters.
        super().__init__(cut(line(message)))
        self.status, self.kind, self.code, self.param = status, kind, code, param
        self.close, self.named = close, False

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"type": "error", "error": error} if self.named else {"error": error}

    def event(self) -> bytes:
        """The event that ends a stream."""
        name = b"event: error\n" if self.named else b""
        return name + b"data: " + self.encoded() + b"\n\n"

    def encoded(self) -> bytes:
        """The JSON body as bytes."""
        return json.dumps(self.body()).encode()


def too_large(limit: int) -> ApiError:
    """The error for a body above the limit in bytes."""
    return ApiError(
        f"the body has more than {limit} bytes; send a shorter request",
        status=413,
        code="request_too_large",
    )


def overloaded(message: str) -> ApiError:
    """The error for a request that may succeed later."""
    return ApiError(message, status=429, kind="rate_limit_error", code="rate_limit_exceeded")


def unavailable(message: str) -> ApiError:
    """The error for a server that is not reachable."""
    return ApiError(message, status=503, kind="server_error", code="server_unavailable")


def unknown_model(name: str, served: str) -> ApiError:
    """The error for the name of a model that is not served here."""
    return ApiError(
        f"model is {name}, which is not served here; set it to {served}",
        status=404,
        code="model_not_found",
        param="model",
    )


def refusal(message: str, longest: int = 0) -> ApiError:
    """The error for a request that a server refuses.

    Args:
        message: of the server.
        longest: most tokens of prompt and answer; 0 if unknown.
    """
    if not any(text in message for text in _LONG_PROMPT):
        return ApiError(message)
    if _CONTEXT in message:
        return ApiError(message, code=CONTEXT_LENGTH)
    # The BLS and vLLM's model name their input.
    message = message.replace("text_input has", "It has", 1)
    return context_length(f"the prompt is too long. {message}", longest)


def context_length(message: str, longest: int = 0, param: str | None = None) -> ApiError:
    """The error for a request that exceeds the longest sequence."""
    limit = f"{longest} tokens" if longest else "exceeded"
    message = f"This model's {_CONTEXT}{limit}. However, {message}"
    return ApiError(message, code=CONTEXT_LENGTH, param=param)
