"""Send generation requests to a served model, over gRPC or HTTP, streaming or not.

`specdec generate` and the demo use `Client`. An answer carries the counts of draft tokens where
the server reports them.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from types import TracebackType
from typing import Literal, Self

from specdec.client.answer import Answer, Chunk, Counts
from specdec.client.connection import Connection, of_url
from specdec.client.fronts.choice import front
from specdec.client.fronts.openai import OpenAI
from specdec.client.fronts.protocol import check_streaming
from specdec.client.http_transport import Http
from specdec.client.request import Request
from specdec.client.transport import Grpc, Model, Transport

__all__ = ["Answer", "Chunk", "Client", "Counts"]

Protocol = Literal["grpc", "http"]


class Client:
    """A connection to one server; use it as a context manager, for one request at a time.

    Args:
        where: `host:port` of Triton's endpoint, the base URL of an OpenAI endpoint, or a
            `Connection` with TLS and headers.
        timeout: maximum seconds for one answer; a `Connection` has its own timeout.
        protocol: of Triton's endpoint; an OpenAI endpoint has HTTP only.

    Every method raises `UnreachableError` if the connection fails, and `RefusedError` with the
    server's message if the server returns an error.
    """

    def __init__(
        self, where: str | Connection, timeout: float = 120.0, protocol: Protocol = "grpc"
    ) -> None:
        connection = of_url(where, timeout=timeout) if isinstance(where, str) else where
        self.url = connection.url
        self._transport = _transport(connection, protocol)

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

    def model(self, name: str) -> Model:
        """Request the declaration of a model."""
        return self._transport.model(name)

    def generate(self, request: Request) -> Iterator[Chunk]:
        """Send a request and yield its chunks as they arrive; closing the iterator cancels it."""
        model = self._transport.model(request.model)
        check_streaming(request, model, self.url)
        served = front(model, request.model, self.url)
        tensors, names = served.tensors(request), served.outputs(request)
        reader = served.reader(request)
        name = model.name or request.model
        with closing(self._transport.answers(name, tensors, names)) as responses:
            for outputs in responses:
                part = reader.read(outputs)
                if part is not None:
                    yield part
        rest = reader.end()
        if rest is not None:
            yield rest


def _transport(connection: Connection, protocol: Protocol) -> Transport:
    if connection.path:
        return OpenAI(connection)
    return Http(connection) if protocol == "http" else Grpc(connection)
