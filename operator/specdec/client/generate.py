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
from specdec.client.http_transport import Http, JsonHttp
from specdec.client.kinds import check_streaming, text_model
from specdec.client.tensors import with_arrays
from specdec.client.transport import Grpc, Transport
from specdec.servers.encoding import Declaration, Requests
from specdec.servers.openai_api import OPENAI
from specdec.servers.request import Request

__all__ = ["Answer", "Chunk", "Client", "Counts"]

Protocol = Literal["grpc", "http"]


class Client:
    """A connection to one server; use it as a context manager, for one request at a time.

    Args:
        where: `host:port` of Triton's endpoint, the base URL of an OpenAI endpoint, or a
            `Connection` with TLS and headers.
        timeout: maximum seconds for one answer; a `Connection` has its own timeout.
        protocol: of Triton's endpoint; an OpenAI endpoint has HTTP only.
        requests: how the server is asked. None finds that by the inputs of a model of Triton, and
            takes a URL with a path for an OpenAI endpoint.

    Every method raises `UnreachableError` if the connection fails, and `RefusedError` with the
    server's message if the server returns an error.
    """

    def __init__(
        self,
        where: str | Connection,
        timeout: float = 120.0,
        protocol: Protocol = "grpc",
        *,
        requests: Requests | None = None,
    ) -> None:
        connection = of_url(where, timeout=timeout) if isinstance(where, str) else where
        self.url = connection.url
        self._requests = requests
        self._transport: Transport
        if connection.path:
            self._requests = requests or OPENAI
            self._transport = JsonHttp(connection, self._requests)
        else:
            self._transport = Http(connection) if protocol == "http" else Grpc(connection)

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

    def model(self, name: str) -> Declaration:
        """Request the declaration of a model."""
        return self._transport.model(name)

    def generate(self, request: Request) -> Iterator[Chunk]:
        """Send a request and yield its chunks as they arrive; closing the iterator cancels it."""
        declared = self._transport.model(request.model)
        check_streaming(request, declared, self.url)
        requests = self._requests or text_model(declared, self.url)
        reader = requests.reader(request)
        call = requests.encode(request, declared)
        with closing(self._transport.responses(call)) as responses:
            for response in responses:
                part = reader.read(response)
                if part is not None:
                    yield with_arrays(part)
        rest = reader.end()
        if rest is not None:
            yield with_arrays(rest)
