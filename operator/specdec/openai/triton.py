"""The client of the Triton server: one gRPC stream for each request."""

import struct
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from specdec.client.answer import Counts
from specdec.client.connection import CONNECT_SECONDS, Connection
from specdec.client.errors import ClientError
from specdec.client.grpc_calls import Server, Tensors, infer_request
from specdec.client.model_names import PREPROCESSING
from specdec.client.request import Request
from specdec.openai.assembly import Piece
from specdec.openai.errors import ApiError, context_length, overloaded, unavailable
from specdec.openai.h2_channel import Channel
from specdec.openai.h2_stream import StreamError
from specdec.openai.request import Served

_TEXT, _TOKENS, _PROMPT_TOKENS = "text_output", "num_output_tokens", "num_input_tokens"
_DRAFTED, _ACCEPTED = "total_draft_tokens", "total_accepted_draft_tokens"
_LOG_PROBS, _HISTOGRAM = "output_log_probs", "acceptance_histogram"
# Only the LLM API's model has it, also before the end, where it is no known reason.
_REASON, _REASONS = "finish_reason", ("stop", "length")
_OUTPUTS = (_TEXT, _TOKENS, _PROMPT_TOKENS, _DRAFTED, _ACCEPTED, _REASON)
_FINAL = "triton_final_response"
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
_parse = service_pb2.ModelStreamInferResponse.FromString
_NUMBER = struct.Struct("<i").unpack_from
# A stream reports an error only by its message: Triton 2.51 crashes if status codes are requested.
# How the BLS and the models report a prompt that is too long,
_LONG_PROMPT = ("for a prompt", "exceeds maximum input length", "exceeds max sequence length")
# and how the BLS, Triton and the engines report that they are busy.
_BUSY = ("again later", "Exceeds maximum queue size", "Maximum queue size of ")
_FAILED = ("its process ended during the call", "is not ready", "is unavailable", "unload")


@dataclass(frozen=True)
class Options:
    """How a caller wants the pieces of an answer.

    Attributes:
        histogram: pieces have the histogram of acceptance, if the server has it.
        direct: may get a piece at once while the generator waits for it, and returns whether it
            used the piece. The generator yields the pieces that it did not use.
    """

    histogram: bool = False
    direct: Callable[[Piece], bool] | None = None


DEFAULT = Options()


class Backend(Protocol):
    """What the endpoint needs of a server.

    Methods raise `ApiError` with the status for the client.
    """

    async def served(self) -> Served:
        """The declaration of the model."""

    async def ready(self) -> bool:
        """Whether the model accepts requests."""

    def pieces(
        self, request: Request, served: Served, options: Options = DEFAULT
    ) -> AsyncGenerator[Piece, None]:
        """Send a request and yield its pieces; closing the generator cancels the request."""

    async def prompt_tokens(self, prompt: str) -> int | None:
        """The number of tokens of a prompt, None if the server does not count them."""


class Triton:
    """A Triton server; an asynchronous context manager. See `Backend`."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._server = Server(connection)
        self._channel = Channel(connection.url)
        self._model = model

    async def __aenter__(self) -> "Triton":
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._channel.close()
        await self._server.__aexit__(None, None, None)

    async def served(self) -> Served:
        """The declaration of the model, requested once."""
        try:
            config = await self._server.config(self._model)
            text = await self._server.config(PREPROCESSING)
        except ClientError as error:
            raise unavailable(str(error)) from error
        longest = config.parameters["max_seq_len"].string_value
        return Served(
            frozenset(tensor.name for tensor in config.input),
            frozenset(tensor.name for tensor in config.output),
            config.model_transaction_policy.decoupled or config.HasField("ensemble_scheduling"),
            int(longest) if longest.isdigit() else 0,
            text.parameters["add_special_tokens"].string_value.lower() not in ("false", "0", "no"),
        )

    async def ready(self) -> bool:
        """Whether the model accepts requests."""
        request = service_pb2.ModelReadyRequest(name=self._model)
        try:
            reply = await self._server.stub.ModelReady(request, timeout=CONNECT_SECONDS)
        except grpc.aio.AioRpcError:
            return False
        return bool(reply.ready)

    async def prompt_tokens(self, prompt: str) -> int | None:
        """The number of tokens of a prompt, from the model `preprocessing`."""
        text = np.array([[prompt.encode()]], dtype=np.object_)
        tensors = {"QUERY": text, "REQUEST_OUTPUT_LEN": np.ones((1, 1), np.int32)}
        request = infer_request(PREPROCESSING, tensors, ("REQUEST_INPUT_LEN",))
        try:
            reply = await self._server.stub.ModelInfer(request, timeout=self._server.timeout)
        except grpc.aio.AioRpcError:
            return None
        return int(_NUMBER(reply.raw_output_contents[0])[0])

    def tensors(self, request: Request, served: Served) -> Tensors:
        """The inputs of a request, by the names of the model."""
        return request.tensors(served.inputs)

    async def pieces(
        self, request: Request, served: Served, options: Options = DEFAULT
    ) -> AsyncGenerator[Piece, None]:
        """As `Backend.pieces`."""
        names = [name for name in _OUTPUTS if name in served.outputs]
        names += [_LOG_PROBS] if request.log_probs else []
        names += [_HISTOGRAM] if options.histogram and _HISTOGRAM in served.outputs else []
        message = infer_request(self._model, self.tensors(request, served), names)
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        try:
            stream = await self._channel.open(_STREAM, message.SerializeToString())
        except StreamError as error:
            raise unavailable(f"the server is not reachable ({error}); try again later") from error
        if options.direct is not None:
            stream.direct = partial(_is_used, options.direct)
        ended = False
        try:
            while not ended:
                data = await stream.read()
                if data is None:
                    ended = True
                    raise unavailable("the server ended the answer early; try again")
                reply = _parse(data)
                if reply.error_message:
                    ended = True
                    raise refused(reply.error_message)
                response = reply.infer_response
                ended = response.parameters[_FINAL].bool_param
                if response.outputs:
                    yield piece(response)
        except StreamError as error:
            ended = True
            raise unavailable(f"the server is not reachable ({error}); try again later") from error
        finally:
            # Triton 2.51 sometimes keeps a request that is cancelled after its end.
            if ended:
                stream.done()
            else:
                stream.cancel()


def _is_used(direct: Callable[[Piece], bool], data: bytes) -> bool:
    """Whether a message has only a piece, and `direct` used it."""
    reply = _parse(data)
    response = reply.infer_response
    # Only the last message has this parameter with a value, and only errors have a message.
    if reply.error_message or response.parameters[_FINAL].bool_param or not response.outputs:
        return False
    return direct(piece(response))


def refused(message: str) -> ApiError:
    """The error for the client, from the server's message."""
    if any(text in message for text in _LONG_PROMPT):
        return context_length(message)
    if any(text in message for text in _BUSY):
        return overloaded(message)
    if any(text in message for text in _FAILED):
        return unavailable(message)
    return ApiError(message)


def piece(response: Any) -> Piece:
    """The piece of a response."""
    contents = response.raw_output_contents
    raw: Mapping[str, bytes] = {
        output.name: contents[index] for index, output in enumerate(response.outputs)
    }
    text = raw.get(_TEXT, b"")
    drafted, accepted = raw.get(_DRAFTED), raw.get(_ACCEPTED)
    tokens, prompt = raw.get(_TOKENS), raw.get(_PROMPT_TOKENS)
    values = raw.get(_LOG_PROBS)
    log_probs = struct.unpack(f"<{len(values) // 4}f", values) if values else ()
    return Piece(
        text[4:].decode(errors="replace"),
        int(_NUMBER(tokens)[0]) if tokens else len(log_probs),
        int(_NUMBER(prompt)[0]) if prompt else None,
        Counts(int(_NUMBER(drafted)[0]), int(_NUMBER(accepted)[0]))
        if drafted and accepted
        else None,
        log_probs,
        _integers(raw.get(_HISTOGRAM, b"")),
        _reason(raw.get(_REASON, b"")),
    )


def _reason(value: bytes) -> str | None:
    text = value[4:].decode(errors="replace")
    return text if text in _REASONS else None


def _integers(values: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(values) // 4}i", values)
