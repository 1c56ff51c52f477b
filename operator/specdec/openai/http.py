"""uvicorn's HTTP protocol with limits that an application cannot enforce.

An application sees a body without its chunks, and a request only after its head. These limits
therefore belong to the connection.
"""

import asyncio
from typing import Any

from typing_extensions import override
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from specdec.openai.errors import ApiError

# The extension of ASGI's scope that has the body of the response, and the key of the body in it.
EXTENSION, BODY = "specdec", "body"
HEAD_BYTES = 64 << 10
HEAD_SECONDS = 30.0
# A body may have this many chunks of any size, and more if they are not small on average.
FREE_CHUNKS = 1024
CHUNK_BYTES = 64
# The most bytes that are read of a body, even of one that was refused; then the connection ends.
DRAINED_BYTES = 256 << 20


class Body:
    """The body of a response that has started, for a callback, which cannot wait."""

    def __init__(self, flow: FlowControl, cycle: RequestResponseCycle) -> None:
        self._flow, self._cycle = flow, cycle

    @property
    def is_writable(self) -> bool:
        """Whether `send` would write now: the client reads, and its answer is not complete."""
        cycle = self._cycle
        is_open = bool(cycle.chunked_encoding) and not cycle.response_complete
        return is_open and not cycle.disconnected and not self._flow.write_paused

    def write(self, part: bytes) -> None:
        """Write a part as `send` does; the part must not be empty."""
        self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(part), part))


class Protocol(HttpToolsProtocol):
    """One connection; a request beyond a limit ends it, after an OpenAI error.

    A head that takes too long gets no error.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_bytes = self._chunks = self._body_bytes = 0
        self._in_head = True
        self._message = ""
        self._deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._head_timed_out)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self._message = f"the head has more than {HEAD_BYTES} bytes; send fewer headers"
            self.send_400_response(self._message)

    @override
    def on_message_begin(self) -> None:
        self._chunks = self._body_bytes = 0
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._head_timed_out)
        super().on_message_begin()

    @override
    def on_message_complete(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()

    @override
    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_deadline()
        super().on_headers_complete()
        if self.cycle is not None:
            self.scope["extensions"] = {EXTENSION: {BODY: Body(self.flow, self.cycle)}}

    def on_chunk_header(self) -> None:
        """Count the chunks of a body; called by the parser."""
        self._chunks += 1
        if self._chunks > FREE_CHUNKS + self._body_bytes // CHUNK_BYTES:
            self._message = (
                f"the body has {self._chunks} chunks of less than {CHUNK_BYTES} bytes on average; "
                "send larger chunks, or a content-length"
            )
            raise ValueError(self._message)

    @override
    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > DRAINED_BYTES:
            self._message = f"the body has more than {DRAINED_BYTES} bytes; send a shorter request"
            raise ValueError(self._message)
        super().on_body(body)

    @override
    def send_400_response(self, msg: str) -> None:
        error = ApiError(self._message or f"{msg.rstrip('.')}; send HTTP/1.1")
        body = error.encoded()
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        # A response that has started cannot be replaced.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or not cycle.response_started or cycle.response_complete:
            self.transport.write(head.encode() + body)
        self.transport.close()

    def _head_timed_out(self) -> None:
        self._deadline = None
        self.transport.close()

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
