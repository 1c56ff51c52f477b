"""The transports of `generate.Client`: the common protocol, and its gRPC implementation.

`http_transport` has the HTTP implementation. Both send one request at a time. HTTP
returns flat lists, and gRPC tensors with their shapes.
"""

import queue
import time
from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import tritonclient.grpc as triton
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from specdec.client.connection import CONNECT_SECONDS, Connection
from specdec.client.errors import RefusedError, UnreachableError

Outputs = Mapping[str, NDArray[Any]]
_UNREACHABLE = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED")


@dataclass(frozen=True)
class Model:
    """The declaration of a served model: names of its tensors, and whether it can stream.

    Attributes:
        name: the server's name for the model; empty if it is the requested name.
    """

    inputs: frozenset[str]
    outputs: frozenset[str]
    streams: bool
    name: str = ""


class Transport(Protocol):
    """A connection to one server.

    Every method raises `UnreachableError` if the connection fails, and `RefusedError` with the
    server's message if the server returns an error.
    """

    def model(self, name: str) -> Model:
        """Request the declaration of a model."""

    def answers(
        self, model: str, tensors: Mapping[str, NDArray[Any]], outputs: Collection[str]
    ) -> Generator[Outputs, None, None]:
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
    """Triton's gRPC endpoint; see `Transport`. One request at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._headers = dict(connection.headers)
        self._triton = triton.InferenceServerClient(
            connection.url,
            ssl=connection.tls,
            root_certificates=connection.root_certificates,
            private_key=connection.private_key,
            certificate_chain=connection.certificate_chain,
        )

    def close(self) -> None:
        """End the connection."""
        self._triton.close()

    def model(self, name: str) -> Model:
        """Request the declaration of a model."""
        options = {"headers": self._headers, "client_timeout": CONNECT_SECONDS}
        try:
            if not self._triton.is_server_live(**options):
                raise UnreachableError(
                    f"the server at {self._connection.url} is not live; try again later"
                )
            config = self._triton.get_model_config(name, **options).config
        except InferenceServerException as error:
            raise self._client_error(error) from error
        return Model(
            frozenset(tensor.name for tensor in config.input),
            frozenset(tensor.name for tensor in config.output),
            # An ensemble declares no transaction policy: it streams if its steps do.
            config.model_transaction_policy.decoupled or config.HasField("ensemble_scheduling"),
        )

    def answers(
        self, model: str, tensors: Mapping[str, NDArray[Any]], outputs: Collection[str]
    ) -> Generator[Outputs, None, None]:
        """Send one request and yield its responses; closing the iterator cancels the request."""
        inputs = [_input(name, array) for name, array in tensors.items()]
        requested = [triton.InferRequestedOutput(name) for name in outputs]
        replies: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        self._triton.start_stream(
            lambda result, error: replies.put((result, error)), headers=self._headers
        )
        # Cancel only an active request. After a late cancellation, Triton 2.51 sometimes keeps the
        # request and its model, so that the server's shutdown takes until its exit timeout.
        ended = False
        try:
            self._triton.async_stream_infer(
                model, inputs, outputs=requested, enable_empty_final_response=True
            )
            yield from self._replies(replies)
            ended = True
        except RefusedError:
            ended = True
            raise
        except InferenceServerException as error:
            raise self._client_error(error) from error
        finally:
            self._triton.stop_stream(cancel_requests=not ended)

    def _replies(
        self, replies: "queue.SimpleQueue[tuple[Any, Exception | None]]"
    ) -> Iterator[Outputs]:
        deadline = time.monotonic() + self._connection.timeout
        while True:
            try:
                result, error = replies.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise timed_out(self._connection) from None
            if error is not None:
                raise self._client_error(error)
            response = result.get_response()
            yield {output.name: result.as_numpy(output.name) for output in response.outputs}
            if response.parameters["triton_final_response"].bool_param:
                return

    def _client_error(self, error: Exception) -> RefusedError | UnreachableError:
        message = error.message() if isinstance(error, InferenceServerException) else str(error)
        status = error.status() if isinstance(error, InferenceServerException) else None
        url = self._connection.url
        if status in _UNREACHABLE:
            return UnreachableError(self._connection.unreachable_message(message or ""))
        return RefusedError(f"the server at {url} refused: {message}")


def _input(name: str, array: NDArray[Any]) -> Any:
    tensor = triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    return tensor
