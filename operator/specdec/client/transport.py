"""The transports of `generate.Client`: the common protocol, and its gRPC implementation.

`http_transport` has the HTTP implementations. All send one request at a time. Triton's HTTP
returns flat lists, and its gRPC tensors with their shapes.
"""

import threading
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Protocol

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from specdec.client.connection import CONNECT_SECONDS, Connection
from specdec.client.errors import RefusedError, UnreachableError
from specdec.client.grpc_calls import (
    UNREACHABLE,
    channel,
    declaration,
    decoded,
    is_final,
    tensor_request,
)
from specdec.servers.encoding import Call, Declaration

# Arrays by the names of Triton's outputs, or the JSON object of an event.
Response = Mapping[str, Any]


class Transport(Protocol):
    """A connection to one server.

    Every method raises `UnreachableError` if the connection fails, and `RefusedError` with the
    server's message if the server returns an error.
    """

    def model(self, name: str) -> Declaration:
        """Request the declaration of a model."""

    def responses(self, call: Call) -> Generator[Response, None, None]:
        """Send one request and yield its responses; closing the iterator cancels the request."""

    def close(self) -> None:
        """End the connection."""


def timed_out(connection: Connection) -> UnreachableError:
    """The error for an answer that exceeds the timeout."""
    return UnreachableError(
        f"no complete answer from {connection.url} within {connection.timeout:g} s; "
        "request fewer tokens or increase the timeout"
    )


class Grpc:
    """Triton's gRPC endpoint; see `Transport`. One request at a time.

    The stubs of tritonclient are used directly: its own client of streams leaves a blocked thread
    behind for each stream that is cancelled.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._headers = tuple(connection.headers.items())
        self._channel = channel(connection, grpc)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def model(self, name: str) -> Declaration:
        """Request the declaration of a model."""
        options = {"metadata": self._headers, "timeout": CONNECT_SECONDS}
        try:
            if not self._stub.ServerLive(service_pb2.ServerLiveRequest(), **options).live:
                raise UnreachableError(
                    f"the server at {self._connection.url} is not live; try again later"
                )
            request = service_pb2.ModelConfigRequest(name=name)
            config = self._stub.ModelConfig(request, **options).config
        except grpc.RpcError as error:
            raise self._client_error(error) from error
        return declaration(config)

    def responses(self, call: Call) -> Generator[Response, None, None]:
        """Send one request and yield its responses; closing the iterator cancels the request."""
        request = tensor_request(call)
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        over = threading.Event()
        timeout = self._connection.timeout
        replies = self._stub.ModelStreamInfer(
            _requests(request, over), metadata=self._headers, timeout=timeout
        )
        # Cancel only an active request. After a late cancellation, Triton 2.51 sometimes keeps the
        # request and its model, so that the server's shutdown takes until its exit timeout.
        ended = False
        try:
            for reply in replies:
                ended = bool(reply.error_message) or is_final(reply.infer_response)
                if reply.error_message:
                    raise self._refused(reply.error_message)
                yield decoded(reply.infer_response)
                if ended:
                    return
            ended = True
            raise self._refused("it ended the answer early; try again")
        except grpc.RpcError as error:
            ended = True
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise timed_out(self._connection) from None
            raise self._client_error(error) from error
        finally:
            over.set()
            if not ended:
                replies.cancel()

    def _refused(self, message: str) -> RefusedError:
        return RefusedError(f"the server at {self._connection.url} refused: {message}")

    def _client_error(self, error: grpc.RpcError) -> RefusedError | UnreachableError:
        message = error.details() or ""
        if error.code() in UNREACHABLE:
            return UnreachableError(self._connection.unreachable_message(message))
        return self._refused(message)


def _requests(request: Any, over: threading.Event) -> Iterator[Any]:
    """The only request of a stream, which stays open until the answer is over.

    gRPC reads this iterator on a thread of its own, which then ends.
    """
    yield request
    over.wait()
