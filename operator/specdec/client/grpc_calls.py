"""Asynchronous gRPC calls to the models of one server: arrays in, arrays out.

The client's draft/target loop, verification and the benchmark use it. gRPC errors become
`RefusedError` or `UnreachableError`. A request that ends early is cancelled on the server.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import InferResult, service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from specdec.client.connection import CONNECT_SECONDS, Connection
from specdec.client.errors import RefusedError, UnreachableError
from specdec.client.tensors import arrays
from specdec.servers.encoding import Call, Declaration, TensorCall

Tensors = Mapping[str, NDArray[Any]]
UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
# An engine returns the logits of a whole prompt, which exceed gRPC's default limit of 4 MiB.
_CHANNEL = {"grpc.max_send_message_length": -1, "grpc.max_receive_message_length": -1}


class Server:
    """A connection to one server; an asynchronous context manager.

    Every method raises `UnreachableError` if the connection fails, and `RefusedError` with the
    server's message if the server returns an error.

    Args:
        connection: the server.
        options: of gRPC's channel, by their names in gRPC.

    Attributes:
        channel, stub: for calls that have no method here.
    """

    def __init__(self, connection: Connection, options: Mapping[str, int] = {}) -> None:
        self.url = connection.url
        self.timeout = connection.timeout
        self.metadata = tuple(connection.headers.items())
        self._connection, self._options = connection, options
        self._configs: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        self.channel = channel(self._connection, grpc.aio, self._options)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.channel.close()

    async def config(self, model: str) -> Any:
        """The model's configuration from Triton, requested once per model."""
        if model not in self._configs:
            request = service_pb2.ModelConfigRequest(name=model)
            try:
                reply = await self.stub.ModelConfig(
                    request, timeout=CONNECT_SECONDS, metadata=self.metadata
                )
            except grpc.aio.AioRpcError as error:
                raise self.error(error.code(), error.details()) from error
            self._configs[model] = reply.config
        return self._configs[model]

    async def declaration(self, model: str) -> Declaration:
        """The declaration of a model."""
        return declaration(await self.config(model))

    async def inputs(self, model: str) -> frozenset[str]:
        """The names of the inputs that a model declares."""
        return frozenset(tensor.name for tensor in (await self.config(model)).input)

    def error(self, code: grpc.StatusCode, details: str | None) -> RefusedError | UnreachableError:
        """The client error for a failed call."""
        if code in UNREACHABLE:
            return UnreachableError(self._connection.unreachable_message(details or ""))
        return RefusedError(f"the server at {self.url} refused: {details or code.name}")


class Calls:
    """Sequential calls: to decoupled models over one stream, to other models by unary calls.

    A loop makes many short calls, and a shared stream saves the HTTP/2 headers of each. Models
    that are not decoupled cannot share it: Triton 2.51 sometimes aborts at a second request on a
    stream.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stream: Any = None
        self._pending = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stream is None:
            return
        # Cancel only an active request. After a late cancellation, Triton 2.51 sometimes keeps the
        # request and its model, so that the server's shutdown takes until its exit timeout.
        if self._pending:
            self._stream.cancel()
            return
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._stream.done_writing()
                while await self._stream.read() is not grpc.aio.EOF:
                    pass
        except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            self._stream.cancel()

    async def call(self, model: str, tensors: Tensors, outputs: Collection[str] = ()) -> Tensors:
        """Call a model, and return its last response with tensors.

        Args:
            model: its Triton name.
            tensors: inputs, batch dimension first.
            outputs: names of the requested outputs; empty for all.
        """
        config = await self._server.config(model)
        request = infer_request(model, tensors, outputs)
        decoupled = config.model_transaction_policy.decoupled
        answer = await (self._streamed(request) if decoupled else self._unary(request))
        if not answer:
            raise RefusedError(f"{model} at {self._server.url} ended the call without an answer")
        return answer

    async def _unary(self, request: Any) -> Tensors:
        return decoded(await self.unary(request))

    async def unary(self, request: Any) -> Any:
        """The undecoded response of a model that is not decoupled."""
        server = self._server
        try:
            return await server.stub.ModelInfer(
                request, timeout=server.timeout, metadata=server.metadata
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise self._timed_out(request) from error
            raise server.error(error.code(), error.details()) from error

    async def _streamed(self, request: Any) -> Tensors:
        answer: Tensors = {}
        try:
            async with (
                asyncio.timeout(self._server.timeout),
                aclosing(self._read(request)) as parts,
            ):
                async for part in parts:
                    answer = part
        except TimeoutError:
            raise self._timed_out(request) from None
        return answer

    async def parts(
        self, model: str, tensors: Tensors, outputs: Collection[str] = ()
    ) -> AsyncGenerator[Tensors, None]:
        """The responses of a decoupled model; closing the iterator cancels the request."""
        async with aclosing(self._read(infer_request(model, tensors, outputs))) as responses:
            async for part in responses:
                yield part

    async def responses(self, call: Call) -> AsyncGenerator[Tensors, None]:
        """The responses to a call; closing the iterator cancels the request."""
        async with aclosing(self._read(tensor_request(call))) as responses:
            async for part in responses:
                yield part

    async def _read(self, request: Any) -> AsyncGenerator[Tensors, None]:
        """The decoded responses that have tensors."""
        async with aclosing(self.replies(request)) as replies:
            async for response in replies:
                if response.outputs:
                    yield decoded(response)

    async def replies(self, request: Any) -> AsyncGenerator[Any, None]:
        """The undecoded responses of a decoupled model; the last one may have no outputs.

        Args:
            request: from `infer_request`; it can be reused.
        """
        if self._stream is None:
            self._stream = self._server.stub.ModelStreamInfer(metadata=self._server.metadata)
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        self._pending = True
        try:
            await self._stream.write(request)
            ended = False
            while not ended:
                response = self._response(await self._stream.read())
                yield response
                ended = is_final(response)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise await self._failure() from error
        self._pending = False

    def _timed_out(self, request: Any) -> UnreachableError:
        return UnreachableError(
            f"no complete answer of {request.model_name} at {self._server.url} within "
            f"{self._server.timeout:g} s; request fewer tokens or increase the timeout"
        )

    def _response(self, reply: Any) -> Any:
        if reply is grpc.aio.EOF:
            raise RefusedError(f"the server at {self._server.url} closed the stream; try again")
        if reply.error_message:
            self._pending = False
            raise RefusedError(f"the server at {self._server.url} refused: {reply.error_message}")
        return reply.infer_response

    async def _failure(self) -> RefusedError | UnreachableError:
        self._pending = False
        return self._server.error(await self._stream.code(), await self._stream.details())


def infer_request(model: str, tensors: Tensors, outputs: Collection[str]) -> Any:
    """Create the gRPC message of a request."""
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, array in tensors.items():
        dtype = np_to_triton_dtype(array.dtype)
        request.inputs.add(name=name, datatype=dtype, shape=array.shape)
        request.raw_input_contents.append(_bytes(array))
    for name in outputs:
        request.outputs.add(name=name)
    return request


def tensor_request(call: Call, outputs: Collection[str] = ()) -> Any:
    """The gRPC message of a call to a model of Triton; `outputs` replace those of the call."""
    assert isinstance(call, TensorCall)  # noqa: S101 -- only JSON APIs get the other kind of call
    return infer_request(call.model, arrays(call.inputs), outputs or call.outputs)


def declaration(config: Any) -> Declaration:
    """The declaration in a model's configuration."""
    ensemble = config.HasField("ensemble_scheduling")
    return Declaration(
        frozenset(tensor.name for tensor in config.input),
        frozenset(tensor.name for tensor in config.output),
        # An ensemble declares no transaction policy: it streams if its steps do.
        config.model_transaction_policy.decoupled or ensemble,
        config.name,
        ensemble,
    )


def decoded(response: Any) -> Tensors:
    """The output arrays of a gRPC response."""
    result = InferResult(response)
    return {output.name: result.as_numpy(output.name) for output in response.outputs}


def is_final(response: Any) -> bool:
    """Whether a response is the last one of its request."""
    return bool(response.parameters["triton_final_response"].bool_param)


def _bytes(array: NDArray[Any]) -> bytes:
    if array.dtype != np.object_:
        return array.tobytes()
    packed = serialize_byte_tensor(array)
    return bytes(packed.item()) if packed.size else b""


def channel(connection: Connection, library: Any, options: Mapping[str, int] = {}) -> Any:
    """A gRPC channel of `library`: `grpc` or `grpc.aio`."""
    given = tuple({**_CHANNEL, **options}.items())
    if not connection.tls:
        return library.insecure_channel(connection.url, options=given)
    read = connection.certificate
    credentials = grpc.ssl_channel_credentials(
        read(connection.root_certificates),
        read(connection.private_key),
        read(connection.certificate_chain),
    )
    return library.secure_channel(connection.url, credentials, options=given)
