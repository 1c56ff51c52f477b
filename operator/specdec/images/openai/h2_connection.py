"""One HTTP/2 connection with gRPC calls, on asyncio."""

import asyncio
import struct
from typing import cast
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, WindowUpdateFrame
from typing_extensions import override

from specdec.images.openai.h2_stream import UNAVAILABLE, Stream, StreamError
from specdec.images.openai.h2_stream import WINDOW as STREAM_WINDOW

# Bytes that the server may send on the connection before they are acknowledged.
_WINDOW = 16 << 20
# Length and type, flags, and number of the stream (RFC 9113, 4.1). An ordinary DATA frame, which
# is not padded and not the last, has type 0 and flags 0.
_HEAD = struct.Struct(">IBI")
_FRAME_BYTES = 1 << 14


class Connection(asyncio.Protocol):
    """One connection and its streams."""

    def __init__(self, authority: str) -> None:
        config = h2.config.H2Configuration(
            client_side=True,
            header_encoding="utf-8",
            validate_inbound_headers=False,
            validate_outbound_headers=False,
        )
        self._h2 = h2.connection.H2Connection(config)
        # Set these as initial values. h2 would apply a changed value at once, but send it to the
        # server only with a later change.
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
        self._other_frames: list[bytes] = []
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

        Most frames are ordinary DATA frames, which go to their streams directly. In h2 they would
        change only windows, which this class acknowledges itself (ADR 0138). h2 handles the other
        frames. For the first piece of an answer, h2 would take longer than all other work of this
        class. So other frames that arrive together with a piece wait until the piece has been
        passed on to the client.
        """
        self._handle_other_frames()
        data = self._received + data if self._received else data
        at, size = 0, len(data)
        fed = False
        while size - at >= _HEAD.size:
            length_and_type, flags, number = _HEAD.unpack_from(data, at)
            length, body = length_and_type >> 8, at + _HEAD.size
            end = body + length
            if length > _FRAME_BYTES:
                self._transport.close()
                return
            if end > size:
                break
            stream, is_data = self._streams.get(number), not length_and_type & 0xFF
            if stream is not None and is_data and not flags:
                self._unacknowledged += length
                stream.feed(data[body:end], length)
                fed = True
            else:
                self._other_frames.append(data[at:end])
                if is_data:
                    self._handle_other_frames()
            at = end
        self._received = data[at:]
        if self._unacknowledged * 2 >= _WINDOW:
            self.acknowledge(0, self._unacknowledged)
            self._unacknowledged = 0
        if fed and self._other_frames:
            asyncio.get_running_loop().call_soon(self._handle_other_frames)
        else:
            self._handle_other_frames()

    def _handle_other_frames(self) -> None:
        """Handle, in their order, the frames that are no ordinary DATA."""
        frames, self._other_frames = self._other_frames, []
        try:
            for frame in frames:
                self._frame(memoryview(frame))
        except (HyperframeError, h2.exceptions.ProtocolError):
            # If h2 refused the frame, it has prepared a message to the server.
            self._flush()
            self._transport.close()

    def acknowledge(self, number: int, length: int) -> None:
        """Let the server send more on a stream; 0 is the connection (WINDOW_UPDATE)."""
        self._transport.write(WindowUpdateFrame(number, window_increment=length).serialize())

    def _frame(self, data: memoryview) -> None:
        """Handle a whole frame that is no ordinary DATA."""
        frame, _ = Frame.parse_frame_header(data[: _HEAD.size])
        if isinstance(frame, DataFrame) and self._is_over(frame.stream_id):
            frame.parse_body(data[_HEAD.size :])
            self._unacknowledged += frame.flow_controlled_length
        elif isinstance(frame, GoAwayFrame):
            # h2 would end all streams, but streams that the server accepted go on (RFC 9113, 6.8).
            # Triton sends this frame to every connection that reaches its maximum age.
            frame.parse_body(data[_HEAD.size :])
            self._retire(frame.last_stream_id)
        else:
            for event in self._h2.receive_data(data):
                self._handle(event)
            self._flush()

    def _is_over(self, number: int) -> bool:
        """Whether a stream of this connection has ended; DATA for it may still arrive."""
        is_ours = number % 2 == 1 and number < self._h2.get_next_available_stream_id()
        return is_ours and number not in self._streams

    def _retire(self, last: int) -> None:
        """Open no further streams, and end those that the server did not accept."""
        self.usable = False
        for number in [number for number in self._streams if number > last]:
            error = StreamError(UNAVAILABLE, "the server ended the connection before the request")
            self._streams.pop(number).end(error)
        self._window.set()
        self._close_if_idle()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._handle_other_frames()
        self.usable = False
        self._window.set()
        for stream in self._streams.values():
            stream.end(StreamError(UNAVAILABLE, "the connection ended"))
        self._streams.clear()

    def close(self) -> None:
        """End the connection."""
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

    def _handle(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived):
            # The frame is the last of its stream, or padded. h2 counted it, so h2 acknowledges it.
            length = event.flow_controlled_length or 0
            self._h2.acknowledge_received_data(length, event.stream_id)
            if (stream := self._streams.get(event.stream_id)) is not None:
                stream.feed(event.data or b"", 0)
        elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
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

    def _status(self, event: h2.events.ResponseReceived | h2.events.TrailersReceived) -> None:
        """Handle the gRPC status of a stream, from its trailers, or its headers if it has none."""
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
