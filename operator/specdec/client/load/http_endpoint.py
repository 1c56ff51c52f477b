"""The benchmark's endpoints for HTTP: Triton's generate extension, and JSON APIs.

`opened.endpoint` creates it for `--protocol http`. A block of bytes gets its arrival time when
the event loop delivers it. While clocks run, only HTTP framing is parsed, by a parser in C. Events
are decoded afterwards.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import httptools
from typing_extensions import override

from specdec.client import http_transport as http
from specdec.client.connection import CONNECT_SECONDS, Connection
from specdec.client.errors import ClientError, RefusedError
from specdec.client.load.endpoint import LoadClient
from specdec.client.load.exchange import OUTPUTS, Decoder, Exchange, lines
from specdec.client.transport import Response
from specdec.servers.encoding import Call, Declaration, JsonCall, Requests, TensorCall

_OK = 200
_BUFFER_BYTES = 64 * 1024


class Http:
    """See `endpoint.Endpoint`. Every client keeps its connection for its next request."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._context = http.tls_context(connection) if connection.tls else None

    async def model(self, name: str) -> Declaration:
        """Request the declaration of a model."""
        return await asyncio.to_thread(http.Http(self._connection).model, name)

    def message(self, call: Call, *, streamed: bool) -> bytes:
        """Encode a request with its head; Triton returns all outputs."""
        assert isinstance(call, TensorCall)  # noqa: S101 -- JSON APIs have another endpoint
        operation = "generate_stream" if streamed else "generate"
        return self._post(f"{http.path(call.model)}/{operation}", http.body(call.inputs))

    def client(self, *, streamed: bool) -> LoadClient:
        """Create a client with its own connection."""
        return _HttpClient(self._connection, self._context, self._decoder)

    def _decoder(
        self, arrivals: Sequence[float], bodies: Sequence[bytes]
    ) -> Iterator[tuple[float, Response]]:
        for arrival, event in events(arrivals, bodies, self._connection.url):
            yield arrival, http.arrays(event, OUTPUTS)

    def _post(self, path: str, text: str) -> bytes:
        """Encode a request with its head."""
        body = text.encode()
        headers = {
            "host": self._connection.url,
            **self._connection.headers,
            "content-type": "application/json",
            "content-length": str(len(body)),
        }
        lines = [f"POST {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


class Json(Http):
    """The JSON API of a kind of server; see `endpoint.Endpoint`."""

    def __init__(self, connection: Connection, requests: Requests) -> None:
        super().__init__(connection)
        self._requests = requests

    @override
    async def model(self, name: str) -> Declaration:
        return await asyncio.to_thread(http.JsonHttp(self._connection, self._requests).model, name)

    @override
    def message(self, call: Call, *, streamed: bool) -> bytes:
        assert isinstance(call, JsonCall)  # noqa: S101 -- models of Triton have other endpoints
        return self._post(f"{self._connection.path}/{call.path}", json.dumps(call.body))

    @override
    def _decoder(
        self, arrivals: Sequence[float], bodies: Sequence[bytes]
    ) -> Iterator[tuple[float, Response]]:
        return events(arrivals, bodies, self._connection.url)


def events(
    arrivals: Sequence[float], bodies: Sequence[bytes], url: str
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield each event of a response with the arrival time of the last byte of its line.

    Raises:
        RefusedError: an event is an error, or is not JSON.
    """
    for arrival, line in lines(arrivals, bodies):
        event = http.event_of(line, url)
        if event is not None:
            yield arrival, event


class _HttpClient(LoadClient):
    def __init__(
        self, connection: Connection, context: ssl.SSLContext | None, decoder: Decoder
    ) -> None:
        super().__init__(connection)
        self._context = context
        self._decoder = decoder
        self._link: _HttpConnection | None = None

    @override
    async def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    @override
    async def _read(self, exchange: Exchange, request: bytes) -> None:
        exchange.decoder = self._decoder
        reused = self._link is not None
        status = await (await self._connected()).send(request, exchange)
        if status is None and reused and not exchange.messages:
            # The server closed the idle connection while the request was in flight.
            status = await (await self._connected()).send(request, exchange)
        if status is None:
            cause = "the server closed it before the answer was complete"
            raise http.connection_failed(self._connection.url, cause)
        if status != _OK:
            message = http.reason(b"".join(exchange.messages), status)
            raise http.refused(self._connection.url, message)

    async def _connected(self) -> "_HttpConnection":
        if self._link is None or self._link.closed:
            target = self._connection
            host, _, port = target.url.rpartition(":")
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    _, self._link = await asyncio.get_running_loop().create_connection(
                        _HttpConnection, host.strip("[]"), int(port), ssl=self._context
                    )
            except OSError as error:
                raise http.connection_failed(target.url, error) from error
        return self._link


class _HttpConnection(asyncio.BufferedProtocol):
    """One connection, with one request at a time.

    It reads into its own buffer, because the event loop would allocate 256 KiB for every read.

    Attributes:
        closed: the connection accepts no more requests.
    """

    closed = False

    def __init__(self) -> None:
        self._parser: httptools.HttpResponseParser | None = None
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    async def send(self, request: bytes, exchange: Exchange) -> int | None:
        """Send a request and fill in its exchange.

        Returns:
            The status; None if the connection ended before the response was complete.

        Raises:
            RefusedError: the response is not HTTP.
        """
        self._add_arrival, self._add_message = exchange.arrivals.append, exchange.messages.append
        self._parser = httptools.HttpResponseParser(self)
        self._status: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._status

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    @override
    def buffer_updated(self, nbytes: int) -> None:
        self._now = _clock()
        if self._parser is None:
            # Bytes without a request in flight violate the protocol.
            self.close()
            return
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except httptools.HttpParserError as error:
            self._end(RefusedError(f"the response is not HTTP ({error}); give the HTTP port"))

    def on_body(self, body: bytes) -> None:
        """Record a part of the body; the parser calls it."""
        self._add_arrival(self._now)
        self._add_message(body)

    def on_message_complete(self) -> None:
        """End the request; the parser calls it after the last byte."""
        parser, self._parser = self._parser, None
        if parser is None:
            return
        if not parser.should_keep_alive():
            self.close()
        self._end(parser.get_status_code())

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._parser is not None:
            self._end(None)

    def close(self) -> None:
        """End the connection; the server then cancels a request in flight."""
        self.closed = True
        self._transport.abort()

    def _end(self, result: int | ClientError | None) -> None:
        if self._status.done():
            return
        if isinstance(result, ClientError):
            self._status.set_exception(result)
        else:
            self._status.set_result(result)


_clock = time.perf_counter
