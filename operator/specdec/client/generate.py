"""Ask a served model, streaming or not, and read what speculation did for the answer."""

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
        timeout: seconds one answer may take; a `Connection` has its own.
        protocol: what is spoken at that port.

    Every method raises `UnreachableError` when nobody answers, `RefusedError` with the server's
    own words when it refuses.
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
        """The whole answer at once."""
        started = time.monotonic()
        answer = Answer()
        for part in self.generate(request):
            answer = answer.add(part, time.monotonic() - started)
        return answer

    def generate(self, request: Request) -> Iterator[Chunk]:
        """The answer's chunks as they arrive; abandoning the iterator cancels the request."""
        model = self._transport.model(request.model)
        if request.stream and not model.streams:
            raise BadRequestError(
                f"model {request.model} at {self.url} does not stream; "
                "ask without streaming, or set spec.serving.streaming to true"
            )
        tensors = request.tensors(model.inputs)
        asked = request.returned()
        wanted = [name for name in (*ALWAYS, *sorted(asked)) if name in model.outputs]
        with closing(self._transport.answers(request.model, tensors, wanted)) as responses:
            for outputs in responses:
                part = chunk(outputs, asked)
                if part is not None:
                    yield part
