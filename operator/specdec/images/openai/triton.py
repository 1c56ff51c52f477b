"""The client of the Triton server: one gRPC stream for each request.

A request whose client has left is stopped by another request, and its stream is read to the end.
Triton 2.51 can crash, or block all streams, when a stream is cancelled.
"""

import asyncio
import struct
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from specdec.client.connection import CONNECT_SECONDS, Connection
from specdec.client.errors import ClientError
from specdec.client.grpc_calls import Server, Tensors, infer_request, is_final
from specdec.client.model_names import ENSEMBLE, PREPROCESSING, TARGET
from specdec.client.request import Request
from specdec.images.openai.assembly import Piece
from specdec.images.openai.errors import ApiError, context_length, overloaded, unavailable
from specdec.images.openai.h2_channel import Channel
from specdec.images.openai.h2_stream import Stream, StreamError
from specdec.images.openai.piece_layout import (
    ACCEPTED,
    DRAFTED,
    HISTOGRAM,
    LOG_PROBS,
    PROMPT_TOKENS,
    REASON,
    TEXT,
    TOKENS,
    PieceLayout,
    last_piece,
    parse,
)
from specdec.images.openai.request import Served

_T = TypeVar("_T")
_OUTPUTS = (TEXT, TOKENS, PROMPT_TOKENS, DRAFTED, ACCEPTED, REASON)
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
_NUMBER = struct.Struct("<i").unpack_from
_STOP = "stop"
# Time in which a stopped request must end; then its stream is cancelled. An engine notices a stop
# within a step. A server with a full queue reads the stop after the requests before it.
_STOP_SECONDS = 600.0
# A stream reports an error only by its message: Triton 2.51 crashes if status codes are requested.
# Parts of the messages by which the BLS and the models report a prompt that is too long.
_LONG_PROMPT = ("for a prompt", "exceeds maximum input length", "exceeds max sequence length")
# Parts of the messages by which the BLS, Triton and the engines report that they are busy.
_BUSY = ("again later", "Exceeds maximum queue size", "Maximum queue size of ")
_FAILED = (
    "its process ended during the call",
    "' is not healthy",  # the process of a Python model has died
    "is not ready",
    "is unavailable",
    "unload",
)


@dataclass(frozen=True)
class Options:
    """How a caller wants the pieces of an answer.

    Attributes:
        histogram: pieces have the histogram of acceptance, if the server has it.
        direct: may be called with a piece at once, while the generator waits for the piece. It
            returns whether it used the piece. The generator yields unused pieces.
    """

    histogram: bool = False
    direct: Callable[[Piece], bool] | None = None


DEFAULT = Options()


class ModelServer(Protocol):
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
        """Send a request and yield its pieces; closing the generator stops the request."""

    async def prompt_tokens(self, prompt: str) -> int | None:
        """The number of tokens of a prompt, None if the server does not count them."""


class Triton:
    """A Triton server; an asynchronous context manager. See `ModelServer`."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._server = Server(connection)
        self._channel = Channel(connection.url)
        self._model = model
        self._layouts: dict[tuple[str, ...], PieceLayout] = {}
        # Requests that go on after their client has left.
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> "Triton":
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CONNECT_SECONDS)
        self._channel.close()
        await self._server.__aexit__(None, None, None)

    async def served(self) -> Served:
        """The declaration of the model, with `add_special_tokens` from `preprocessing`."""
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
        """The number of tokens of a prompt, from the model `preprocessing`.

        If the caller is cancelled, the request goes on: Triton 2.51 can crash when a client
        cancels a unary request.
        """
        return await asyncio.shield(self._start(self._prompt_tokens(prompt)))

    def _start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _prompt_tokens(self, prompt: str) -> int | None:
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
        """As `ModelServer.pieces`."""
        names = [name for name in _OUTPUTS if name in served.outputs]
        names += [LOG_PROBS] if request.log_probs else []
        names += [HISTOGRAM] if options.histogram and HISTOGRAM in served.outputs else []
        message = infer_request(self._model, self.tensors(request, served), names)
        message.id = uuid.uuid4().hex
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        try:
            stream = await self._channel.open(_STREAM, message.SerializeToString())
        except StreamError as error:
            raise unavailable(f"the server is not reachable ({error}); try again later") from error
        # Messages with the same outputs begin alike, whichever stream they belong to.
        layout = self._layouts.setdefault(tuple(names), PieceLayout())
        if options.direct is not None:
            stream.direct = partial(_is_used, layout, options.direct)
        ended = False
        try:
            while not ended:
                data = await stream.read()
                if data is None:
                    ended = True
                    raise unavailable("the server ended the answer early; try again")
                if (piece := layout.piece(data)) is None:
                    reply = parse(data)
                    if reply.error_message:
                        ended = True
                        raise refused(reply.error_message)
                    ended = is_final(reply.infer_response)
                    piece = last_piece(reply.infer_response)
                if piece is not None:
                    yield piece
        except StreamError as error:
            ended = True
            raise unavailable(f"the server is not reachable ({error}); try again later") from error
        finally:
            # Triton 2.51 sometimes keeps a request that is cancelled after its end.
            if ended:
                stream.done()
            else:
                stream.direct = None
                _ = self._start(self._stop(stream, message.id, served))

    def stop_call(self, served: Served) -> tuple[str, Tensors] | None:
        """The model and the inputs of a call that stops a request; None if no model can."""
        if _STOP in served.inputs:
            text = np.array([[b""]], dtype=np.object_)
            return self._model, {"text_input": text, _STOP: np.array([[True]])}
        if self._model == ENSEMBLE:
            # Triton gives the calls of an ensemble the id of its request.
            one = np.ones((1, 1), np.int32)
            lengths = {"input_ids": one, "input_lengths": one, "request_output_len": one}
            return TARGET, {**lengths, _STOP: np.array([[True]])}
        return None

    async def _stop(self, stream: Stream, request_id: str, served: Served) -> None:
        """Stop a request whose client has left, and wait until the server has ended it."""
        call = self.stop_call(served)
        try:
            if call is None:
                stream.cancel()
                return
            async with asyncio.timeout(_STOP_SECONDS):
                message = infer_request(*call, ())
                message.id = request_id
                message.parameters["triton_enable_empty_final_response"].bool_param = True
                stop = await self._channel.open(_STREAM, message.SerializeToString())
                await _finish(stop)
                await _finish(stream)
        except (TimeoutError, StreamError):
            stream.cancel()


async def _finish(stream: Stream) -> None:
    """Read a stream up to the last response of its request."""
    while (data := await stream.read()) is not None:
        reply = parse(data)
        if reply.error_message or is_final(reply.infer_response):
            break
    stream.done()


def _is_used(layout: PieceLayout, direct: Callable[[Piece], bool], data: bytes) -> bool:
    """Whether a message has only a piece, and `direct` used it."""
    piece = layout.piece(data)
    return piece is not None and direct(piece)


def refused(message: str) -> ApiError:
    """The error for the client, from the server's message."""
    if any(text in message for text in _LONG_PROMPT):
        return context_length(message)
    if any(text in message for text in _BUSY):
        return overloaded(message)
    if any(text in message for text in _FAILED):
        return unavailable(message)
    return ApiError(message)
