"""One HTTP/2 connection with gRPC calls, on asyncio."""

import asyncio
from typing import Any, cast
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from typing_extensions import override

from specdec.openai.h2_stream import UNAVAILABLE, Stream, StreamError
from specdec.openai.h2_stream import WINDOW as STREAM_WINDOW

# Bytes that the server may send on the connection before they are acknowledged.
_WINDOW = 16 << 20
_FRAME_HEAD = 9
# Frames of type 0 (DATA), and their flags END_STREAM and PADDED.
_DATA, _SPECIAL_DATA = 0, 0x1 | 0x8
_FRAME_BYTES = 1 << 14


class _H2(h2.connection.H2Connection):
    """h2's connection, whose streams go on after a GOAWAY as HTTP/2 specifies (RFC 9113, 6.8).

    h2 itself treats the connection as closed then. Triton sends a GOAWAY to every connection that
    reaches its age, and finishes its streams.
    """

    @override
    def _receive_goaway_frame(self, frame: Any) -> tuple[list[Any], list[h2.events.Event]]:
        return [], [h2.events.ConnectionTerminated()]


class Connection(asyncio.Protocol):
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
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
            },
        )
        self._authority = authority
        self._streams: dict[int, Stream] = {}
        self._window = asyncio.Event()
        self._received = b""
        self._unacknowledged = 0
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
        """Split the bytes into frames.

        Ordinary DATA frames are most of all, and go to their streams directly. h2 gets the others:
        it needs 40 us for a frame, and DATA frames change nothing in its state but windows, which
        this class acknowledges itself.
        """
        data = self._received + data if self._received else data
        at, size = 0, len(data)
        while size - at >= _FRAME_HEAD:
            length = int.from_bytes(data[at : at + 3], "big")
            body, end = at + _FRAME_HEAD, at + _FRAME_HEAD + length
            if length > _FRAME_BYTES:
                self._transport.close()
                return
            if end > size:
                break
            if data[at + 3] == _DATA and not data[at + 4] & _SPECIAL_DATA:
                stream = self._streams.get(int.from_bytes(data[at + 5 : body], "big"))
                self._unacknowledged += length
                if stream is not None:
                    stream.feed(data[body:end])
            elif not self._frame(data[at:end]):
                return
            at = end
        self._received = data[at:]
        if self._unacknowledged * 2 >= _WINDOW:
            self.acknowledge(0, self._unacknowledged)
            self._unacknowledged = 0

    def acknowledge(self, number: int, length: int) -> None:
        """Let the server send more on a stream; 0 is the connection (WINDOW_UPDATE)."""
        frame = b"\0\0\x04\x08\0" + number.to_bytes(4, "big") + length.to_bytes(4, "big")
        self._transport.write(frame)

    def _frame(self, data: bytes) -> bool:
        """Give a frame to h2; false if it ends the connection."""
        try:
            events = self._h2.receive_data(data)
        except h2.exceptions.ProtocolError:
            self._transport.close()
            return False
        for event in events:
            if isinstance(event, h2.events.DataReceived):
                if (stream := self._streams.get(event.stream_id)) is not None and event.data:
                    stream.feed(event.data)
            else:
                self._other(event)
        self._flush()
        return True

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._window.set()
        for stream in self._streams.values():
            stream.end(StreamError(UNAVAILABLE, "the connection ended"))
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
            raise StreamError(UNAVAILABLE, f"the connection ended: {error}") from error
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
                    error = StreamError(UNAVAILABLE, "the server reset the stream")
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
            code = str(UNAVAILABLE)
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
