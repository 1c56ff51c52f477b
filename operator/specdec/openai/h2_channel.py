"""A gRPC channel for streams of one request: HTTP/2 on asyncio, without gRPC's own threads.

gRPC's Python library needs 140 µs of processor time for each message that it reads, because each
wakes a thread that wakes the event loop. This channel needs less than half. It has what the
endpoint uses: streams with one request and many responses, status, cancellation, flow control, and
a new connection when the server ends the old one (`GOAWAY`).
"""

import asyncio
from collections import deque
from typing import Any, cast
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from typing_extensions import override

from specdec.client.connection import CONNECT_SECONDS

# Bytes that the server may send before they are acknowledged; a piece has some hundred.
_WINDOW = 16 << 20
_PREFIX = 5
_UNAVAILABLE = 14


class StreamError(Exception):
    """A stream ended with a gRPC status other than OK.

    Attributes:
        code: of gRPC; 14 (UNAVAILABLE) for a failed connection.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Stream:
    """One call: `read` returns the messages of the server."""

    def __init__(self, connection: "_Connection", number: int) -> None:
        self._connection, self._number = connection, number
        self._buffer = bytearray()
        self._messages: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: StreamError | None = None

    async def read(self) -> bytes | None:
        """The next message; None after the last.

        Raises:
            StreamError: the stream ended with an error.
        """
        while not self._messages:
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._messages.popleft()

    def cancel(self) -> None:
        """End the call on the server."""
        if not self._ended:
            self._connection.reset(self._number)

    def done(self) -> None:
        """Report that no request follows."""
        if not self._ended:
            self._connection.half_close(self._number)

    def feed(self, data: bytes) -> None:
        """Add received bytes: messages with a prefix of one flag and four bytes of length."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _PREFIX:
            end = _PREFIX + int.from_bytes(buffer[1:_PREFIX], "big")
            if len(buffer) < end:
                break
            self._messages.append(bytes(buffer[_PREFIX:end]))
            del buffer[:end]
        if self._messages:
            self._wake()

    def end(self, error: StreamError | None = None) -> None:
        """No further message follows."""
        if not self._ended:
            self._ended, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _H2(h2.connection.H2Connection):
    """h2's connection, whose streams go on after a GOAWAY as HTTP/2 specifies (RFC 9113, 6.8).

    h2 itself treats the connection as closed then. Triton sends a GOAWAY to every connection that
    reaches its age, and finishes its streams.
    """

    @override
    def _receive_goaway_frame(self, frame: Any) -> tuple[list[Any], list[h2.events.Event]]:
        return [], [h2.events.ConnectionTerminated()]


class _Connection(asyncio.Protocol):
    """One connection and its streams."""

    def __init__(self, authority: str) -> None:
        config = h2.config.H2Configuration(
            client_side=True,
            header_encoding="utf-8",
            validate_inbound_headers=False,
            validate_outbound_headers=False,
        )
        self._h2 = _H2(config)
        # As initial values: changed ones would count from now, but be sent with a later change.
        self._h2.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
            },
        )
        self._authority = authority
        self._streams: dict[int, Stream] = {}
        self._window = asyncio.Event()
        self._transport: asyncio.Transport
        self.usable = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW)
        self._flush()
        self.usable = True

    @override
    def data_received(self, data: bytes) -> None:
        try:
            events = self._h2.receive_data(data)
        except h2.exceptions.ProtocolError:
            self._transport.close()
            return
        for event in events:
            if isinstance(event, h2.events.DataReceived):
                length, number = event.flow_controlled_length or 0, event.stream_id
                self._h2.acknowledge_received_data(length, number)
                if (stream := self._streams.get(number)) is not None and event.data:
                    stream.feed(event.data)
            else:
                self._other(event)
        self._flush()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._window.set()
        for stream in self._streams.values():
            stream.end(StreamError(_UNAVAILABLE, "the connection ended"))
        self._streams.clear()

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def retire(self) -> None:
        """Open no further streams; the connection ends with the last one."""
        self.usable = False
        if not self._streams:
            self._transport.close()

    async def open(self, path: str, message: bytes) -> Stream:
        """Start a call and send its request."""
        number = self._h2.get_next_available_stream_id()
        stream = self._streams[number] = Stream(self, number)
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", self._authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "specdec"),
        ]
        try:
            self._h2.send_headers(number, headers)
            await self._send(number, b"\0" + len(message).to_bytes(4, "big") + message)
        except h2.exceptions.ProtocolError as error:
            self._streams.pop(number, None)
            raise StreamError(_UNAVAILABLE, f"the connection ended: {error}") from error
        except BaseException:
            self.reset(number)
            raise
        return stream

    def reset(self, number: int) -> None:
        """Cancel a call."""
        if self._streams.pop(number, None) is None:
            return
        try:
            self._h2.reset_stream(number, h2.errors.ErrorCodes.CANCEL)
        except h2.exceptions.ProtocolError:
            return
        self._flush()
        self._close_if_idle()

    def half_close(self, number: int) -> None:
        """Report that no request follows."""
        if number in self._streams:
            try:
                self._h2.end_stream(number)
            except h2.exceptions.ProtocolError:
                return
            self._flush()

    async def _send(self, number: int, data: bytes) -> None:
        """Send as much as the windows of the server allow at a time."""
        while data and number in self._streams:
            room = min(
                self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size
            )
            if room:
                self._h2.send_data(number, data[:room])
                data = data[room:]
                self._flush()
                continue
            self._window.clear()
            await self._window.wait()
        self._flush()

    def _other(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            self._status(event)
        elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
            stream = self._streams.pop(event.stream_id, None)
            if stream is not None:
                error = None
                if isinstance(event, h2.events.StreamReset):
                    error = StreamError(_UNAVAILABLE, "the server reset the stream")
                stream.end(error)
            self._window.set()
            self._close_if_idle()
        elif isinstance(event, h2.events.WindowUpdated | h2.events.RemoteSettingsChanged):
            self._window.set()
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.retire()

    def _status(self, event: h2.events.ResponseReceived | h2.events.TrailersReceived) -> None:
        """The gRPC status of a stream, which its trailers have, or its only headers."""
        headers = {str(name): str(value) for name, value in event.headers or ()}
        code = headers.get("grpc-status")
        if code is None and headers.get(":status", "200") != "200":
            code = str(_UNAVAILABLE)
        stream = self._streams.get(event.stream_id or 0)
        if stream is not None and code is not None and code != "0":
            message = unquote(headers.get("grpc-message", "")) or f"gRPC status {code}"
            stream.end(StreamError(int(code) if code.isdigit() else 2, message))

    def _close_if_idle(self) -> None:
        if not self.usable and not self._streams:
            self._transport.close()

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._transport.write(data)


class Channel:
    """Streams to one server, on one connection at a time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: _Connection | None = None
        self._lock = asyncio.Lock()

    async def open(self, path: str, message: bytes) -> Stream:
        """Start a call with one request.

        Raises:
            StreamError: the connection failed.
        """
        async with self._lock:
            if self._connection is None or not self._connection.usable:
                self._connection = await self._connect()
            connection = self._connection
        return await connection.open(path, message)

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()

    async def _connect(self) -> _Connection:
        host, _, port = self._url.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, protocol = await loop.create_connection(
                    lambda: _Connection(self._url), host, int(port)
                )
        except (OSError, TimeoutError) as error:
            raise StreamError(_UNAVAILABLE, f"connection to {self._url} failed") from error
        return protocol
