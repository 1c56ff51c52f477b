"""Send generation requests to a served model, over gRPC or HTTP, streaming or not.

`specdec generate` and the demo use `Client`. An answer carries the counts of draft tokens where
the server reports them.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from types import TracebackType
from typing import Literal, Self

from specdec.client.answer import ALWAYS, Answer, Chunk, Counts, chunk
from specdec.client.connection import Connection
from specdec.client.errors import BadRequestError
from specdec.client.http_transport import Http
from specdec.client.request import Request
from specdec.client.transport import Grpc, Transport

__all__ = ["Answer", "Chunk", "Client", "Counts"]

Protocol = Literal["grpc", "http"]


class Client:
    """A connection to one server; use it as a context manager, for one request at a time.

    Args:
        where: `host:port` of Triton's endpoint, or a `Connection` with TLS and headers.
        timeout: maximum seconds for one answer; a `Connection` has its own timeout.
        protocol: of the endpoint.

    Every method raises `UnreachableError` if the connection fails, and `RefusedError` with the
    server's message if the server returns an error.
    """

    def __init__(
        self, where: str | Connection, timeout: float = 120.0, protocol: Protocol = "grpc"
    ) -> None:
        connection = Connection(where, timeout) if isinstance(where, str) else where
        self.url = connection.url
        self._transport: Transport = Http(connection) if protocol == "http" else Grpc(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._transport.close()

    def ask(self, request: Request) -> Answer:
        """Send a request and return the complete answer."""
        started = time.monotonic()
        answer = Answer()
        for part in self.generate(request):
            answer = answer.add(part, time.monotonic() - started)
        return answer

    def generate(self, request: Request) -> Iterator[Chunk]:
        """Send a request and yield its chunks as they arrive; closing the iterator cancels it."""
        model = self._transport.model(request.model)
        if request.stream and not model.streams:
            raise BadRequestError(
                f"model {request.model} at {self.url} does not stream; "
                "send the request without streaming, or set spec.serving.streaming to true"
            )
        tensors = request.tensors(model.inputs)
        requested = request.optional_outputs()
        names = [name for name in (*ALWAYS, *sorted(requested)) if name in model.outputs]
        with closing(self._transport.answers(request.model, tensors, names)) as responses:
            for outputs in responses:
                part = chunk(outputs, requested)
                if part is not None:
                    yield part
