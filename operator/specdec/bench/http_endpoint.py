"""Triton's generate endpoints under a benchmark's load.

Bytes get their time where the event loop hands them over, before anything is done with them; of
them, only the frame of HTTP is read while clocks run, by a parser in C. Events are read later.
"""

import asyncio
import ssl
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import httptools
from typing_extensions import override

from specdec.bench.endpoint import LoadClient
from specdec.bench.exchange import OUTPUTS, Exchange
from specdec.client import http_transport as http
from specdec.client.connection import CONNECT_SECONDS, Connection
from specdec.client.errors import ClientError, RefusedError
from specdec.client.grpc_calls import Tensors
from specdec.client.transport import Model

_OK = 200
_BUFFER_BYTES = 64 * 1024


class Http:
    """See `endpoint.Endpoint`. Every line is a connection that is kept for its next request."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._context = http.tls_context(connection) if connection.tls else None

    async def model(self, name: str) -> Model:
        """What a model declares."""
        return await asyncio.to_thread(http.Http(self._connection).model, name)

    def message(
        self, model: str, tensors: Tensors, outputs: Collection[str], *, streamed: bool
    ) -> bytes:
        """The whole request with its head; all outputs come back, whichever are wanted."""
        body = http.body(tensors).encode()
        headers = {
            "host": self._connection.url,
            **self._connection.headers,
            "content-type": "application/json",
            "content-length": str(len(body)),
        }
        way = "generate_stream" if streamed else "generate"
        lines = [f"POST {http.path(model)}/{way} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def line(self, *, streamed: bool) -> LoadClient:
        """A connection of its own."""
        return _Line(self._connection, self._context)


@dataclass(frozen=True)
class Events:
    """Makes parts of an answer's bytes: see `exchange.Reading`.

    Attributes:
        url: of who sent them.
    """

    url: str

    def __call__(
        self, arrivals: Sequence[float], bodies: Sequence[bytes]
    ) -> Iterator[tuple[float, Tensors]]:
        """An event came when its line's last byte did, however it was cut.

        Raises:
            RefusedError: an event is an error, or no JSON.
        """
        line, arrival = b"", 0.0
        for arrival, body in zip(arrivals, bodies, strict=True):
            *whole, line = (line + body).split(b"\n")
            for one in whole:
                yield from self._read(arrival, one)
        # The one answer of a model that does not stream has no line's end.
        yield from self._read(arrival, line)

    def _read(self, arrival: float, line: bytes) -> Iterator[tuple[float, Tensors]]:
        text = line.removeprefix(http.EVENT).strip()
        if not text:
            return
        event = http.read(text)
        if "error" in event:
            raise http.refused(self.url, event["error"])
        yield arrival, http.arrays(event, OUTPUTS)


class _Line(LoadClient):
    def __init__(self, connection: Connection, context: ssl.SSLContext | None) -> None:
        super().__init__(connection)
        self._context = context
        self._events = Events(connection.url)
        self._link: _Link | None = None

    @override
    async def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    @override
    async def _read(self, exchange: Exchange, request: bytes) -> None:
        exchange.reading = self._events
        kept = self._link is not None
        status = await (await self._linked()).ask(request, exchange)
        if status is None and kept and not exchange.messages:
            # The server had ended the idle connection when the request was on its way.
            status = await (await self._linked()).ask(request, exchange)
        if status is None:
            raise http.nobody(self._connection.url, "it hung up before the answer was whole")
        if status != _OK:
            words = http.reason(b"".join(exchange.messages), status)
            raise http.refused(self._connection.url, words)

    async def _linked(self) -> "_Link":
        if self._link is None or self._link.gone:
            given = self._connection
            host, _, port = given.url.rpartition(":")
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    _, self._link = await asyncio.get_running_loop().create_connection(
                        _Link, host.strip("[]"), int(port), ssl=self._context
                    )
            except OSError as error:
                raise http.nobody(given.url, error) from error
        return self._link


class _Link(asyncio.BufferedProtocol):
    """One connection, with one request at a time.

    It reads into a buffer of its own: the event loop's way takes 256 KiB of new memory a read.

    Attributes:
        gone: it takes no more requests.
    """

    gone = False

    def __init__(self) -> None:
        self._parser: httptools.HttpResponseParser | None = None
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    async def ask(self, request: bytes, exchange: Exchange) -> int | None:
        """Send a request and fill in its exchange.

        Returns:
            The answer's status; None where the connection ended before the answer did.

        Raises:
            RefusedError: who answers speaks no HTTP.
        """
        self._arrived, self._kept = exchange.arrivals.append, exchange.messages.append
        self._parser = httptools.HttpResponseParser(self)
        self._whole: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._whole

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    @override
    def buffer_updated(self, nbytes: int) -> None:
        self._now = _clock()
        if self._parser is None:
            # Nobody asked for anything.
            self.close()
            return
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except httptools.HttpParserError as error:
            self._end(RefusedError(f"what answers there speaks no HTTP ({error})"))

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._arrived(self._now)
        self._kept(body)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        parser, self._parser = self._parser, None
        if parser is None:
            return
        if not parser.should_keep_alive():
            self.close()
        self._end(parser.get_status_code())

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        if self._parser is not None:
            self._end(None)

    def close(self) -> None:
        """End the connection; the server cancels what it was asked."""
        self.gone = True
        self._transport.abort()

    def _end(self, told: int | ClientError | None) -> None:
        if self._whole.done():
            return
        if isinstance(told, ClientError):
            self._whole.set_exception(told)
        else:
            self._whole.set_result(told)


_clock = time.perf_counter
