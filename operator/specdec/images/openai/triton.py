"""The client of the Triton server: one gRPC stream for each request.

A request whose client has left is stopped by another request, and its stream is read to the end.
Triton 2.51 can crash, or block all streams, when a stream is cancelled.
"""

import asyncio
import struct
import uuid
from collections.abc import AsyncGenerator, Collection, Coroutine
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from specdec.client.connection import CONNECT_SECONDS, Connection
from specdec.client.errors import ClientError
from specdec.client.grpc_calls import Server, infer_request, is_final, tensor_request
from specdec.images.openai.assembly import Piece
from specdec.images.openai.errors import ApiError, overloaded, refusal, unavailable
from specdec.images.openai.pieces import HISTOGRAM, PROMPT_TOKENS, TOKENS, piece
from specdec.images.openai.request import Served
from specdec.images.openai.stream import Stream
from specdec.servers.chunk import ACCEPTED, DRAFTED, REASON, TEXT, NewText
from specdec.servers.encoding import Call, Requests
from specdec.servers.request import Request

_T = TypeVar("_T")
_OUTPUTS = (TEXT, TOKENS, PROMPT_TOKENS, DRAFTED, ACCEPTED, REASON)
_NUMBER = struct.Struct("<i").unpack_from
# Time in which a stopped request must end; then its stream is cancelled. An engine notices a stop
# within a step. A server with a full queue reads the stop after the requests before it.
_STOP_SECONDS = 600.0
# Time between attempts to connect to a server that is restarted. gRPC's rises to two minutes.
_RECONNECT_MS = 500
# A piece has a few hundred bytes. Only a broken server sends larger messages than this.
_MESSAGE_BYTES = 64 << 20
# A stream reports an error only by its message: Triton 2.51 crashes if status codes are requested.
# Parts of the messages by which the BLS, Triton and the engines report that they are busy.
_BUSY = ("again later", "Exceeds maximum queue size", "Maximum queue size of ")
_FAILED = (
    "its process ended during the call",
    "' is not healthy",  # the process of a Python model has died
    "is not ready",
    "is unavailable",
    "unload",
)


class ModelServer(Protocol):
    """What the endpoint needs of a server.

    Methods raise `ApiError` with the status for the client.
    """

    async def served(self) -> Served:
        """The declaration of the model."""

    async def ready(self) -> bool:
        """Whether the model accepts requests."""

    def pieces(
        self, request: Request, served: Served, *, histogram: bool = False
    ) -> AsyncGenerator[Piece, None]:
        """Send a request and yield its pieces; closing the generator stops the request.

        Pieces have the histogram of acceptance if `histogram` is true and the server has it.
        """

    async def prompt_tokens(self, prompt: str) -> int | None:
        """The number of tokens of a prompt, None if the server does not count them."""


class Triton:
    """A Triton server; an asynchronous context manager. See `ModelServer`.

    Args:
        connection: to the server.
        model: its name.
        requests: how it is asked.
    """

    def __init__(self, connection: Connection, model: str, requests: Requests) -> None:
        self._server = Server(connection, _channel())
        self._model, self._requests = model, requests
        # Requests that go on after their client has left.
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> "Triton":
        await self._server.__aenter__()
        # The call sends the only request and the end of the requests together.
        self._call = self._server.channel.unary_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CONNECT_SECONDS)
        await self._server.__aexit__(None, None, None)

    async def served(self) -> Served:
        """The declaration of the model; its tokenizer has `add_special_tokens`."""
        try:
            config = await self._server.config(self._model)
            declared = await self._server.declaration(self._model)
            adds_special_tokens = await self._adds_special_tokens()
        except ClientError as error:
            raise unavailable(str(error)) from error
        longest = config.parameters["max_seq_len"].string_value
        return Served(
            self._requests,
            declared,
            int(longest) if longest.isdigit() else 0,
            adds_special_tokens,
        )

    async def _adds_special_tokens(self) -> bool:
        if not self._requests.tokenizer:
            return True
        config = await self._server.config(self._requests.tokenizer)
        value: str = config.parameters["add_special_tokens"].string_value
        return value.lower() not in ("false", "0", "no")

    async def ready(self) -> bool:
        """Whether the model accepts requests."""
        request = service_pb2.ModelReadyRequest(name=self._model)
        try:
            reply = await self._server.stub.ModelReady(request, timeout=CONNECT_SECONDS)
        except grpc.aio.AioRpcError:
            return False
        return bool(reply.ready)

    async def prompt_tokens(self, prompt: str) -> int | None:
        """The number of tokens of a prompt; None if the server has no model that tokenizes.

        If the caller is cancelled, the request goes on: Triton 2.51 can crash when a client
        cancels a unary request.
        """
        if not self._requests.tokenizer:
            return None
        return await asyncio.shield(self._start(self._prompt_tokens(prompt)))

    def _start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _prompt_tokens(self, prompt: str) -> int | None:
        text = np.array([[prompt.encode()]], dtype=np.object_)
        tensors = {"QUERY": text, "REQUEST_OUTPUT_LEN": np.ones((1, 1), np.int32)}
        request = infer_request(self._requests.tokenizer, tensors, ("REQUEST_INPUT_LEN",))
        try:
            reply = await self._server.stub.ModelInfer(request, timeout=self._server.timeout)
        except grpc.aio.AioRpcError:
            return None
        return int(_NUMBER(reply.raw_output_contents[0])[0])

    async def pieces(
        self, request: Request, served: Served, *, histogram: bool = False
    ) -> AsyncGenerator[Piece, None]:
        """As `ModelServer.pieces`."""
        requests, declared = served.requests, served.declared
        # A server that sends whole texts would cut a stop string that it has sent in part.
        if request.stream and requests.whole_texts:
            request = replace(request, stop_words=())
        names = [name for name in _OUTPUTS if name in declared.outputs]
        names += [requests.log_probs] if request.log_probs else []
        names += [HISTOGRAM] if histogram and HISTOGRAM in declared.outputs else []
        request_id = uuid.uuid4().hex
        call = requests.encode(request, declared)
        stream = self._open(request_id, call, names)
        new = NewText() if requests.whole_texts else None
        ended = False
        try:
            while not ended:
                reply = await stream.read()
                ended = (
                    reply is None or bool(reply.error_message) or is_final(reply.infer_response)
                )
                if reply is None:
                    raise unavailable("the server ended the answer early; try again")
                if reply.error_message:
                    raise refused(reply.error_message, served.max_seq_len)
                if (part := piece(reply.infer_response, requests)) is not None:
                    yield part if new is None else new_part(part, new)
        except grpc.aio.AioRpcError as error:
            ended = True
            reason = f"the server is not reachable ({error.details()}); try again later"
            raise unavailable(reason) from error
        finally:
            if ended:
                _ = self._start(_finish(stream))
            elif (stop := requests.stop(declared)) is not None:
                _ = self._start(_finish(self._open(request_id, stop), stream))
            else:
                stream.cancel()

    def _open(self, request_id: str, call: Call, outputs: Collection[str] = ()) -> Stream:
        """Send a request."""
        message = tensor_request(call, outputs)
        message.id = request_id
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        return Stream(self._call(message))


def new_part(whole: Piece, new: NewText) -> Piece:
    """The piece with the new part of its text."""
    text = new.of(whole.text)
    return replace(whole, text=text + new.rest() if whole.reason else text)


async def _finish(*streams: Stream) -> None:
    """Read streams to their ends; cancel streams that the server does not end in time."""
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            for stream in streams:
                await stream.finish()
    except (TimeoutError, grpc.aio.AioRpcError):
        for stream in streams:
            stream.cancel()


def _channel() -> dict[str, int]:
    """The options of gRPC's channel."""
    return {
        # Without it, gRPC sends a ping with most pieces to measure the connection.
        "grpc.http2.bdp_probe": 0,
        "grpc.initial_reconnect_backoff_ms": _RECONNECT_MS,
        "grpc.max_reconnect_backoff_ms": _RECONNECT_MS,
        # The time limit of an attempt.
        "grpc.min_reconnect_backoff_ms": int(CONNECT_SECONDS * 1000),
        "grpc.max_receive_message_length": _MESSAGE_BYTES,
    }


def refused(message: str, longest: int = 0) -> ApiError:
    """The error for the client, from the server's message; `longest` as in `refusal`."""
    if any(text in message for text in _BUSY):
        return overloaded(message)
    if any(text in message for text in _FAILED):
        return unavailable(message)
    return refusal(message, longest)
