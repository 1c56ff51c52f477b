"""uvicorn's HTTP protocol with limits that an application cannot enforce.

An application sees a body without its chunks, and a request only after its head. These limits
therefore belong to the connection.
"""

import asyncio
import sys
from functools import partial
from typing import Any, NoReturn

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from specdec.images.openai.errors import ApiError
from specdec.images.openai.limits import (
    CHUNK_BYTES,
    DRAINED_BYTES,
    DRAINED_SECONDS,
    FRAMING_BYTES,
    FREE_CHUNKS,
    HEAD_BYTES,
    HEAD_SECONDS,
    HEADERS,
    PIPELINED,
    WRITE_SECONDS,
    Limits,
)


class Protocol(HttpToolsProtocol):
    """One connection; a request beyond a limit ends it, after an OpenAI error.

    A head or a refused body that takes too long gets no error, nor does a client that reads
    nothing.

    Args:
        arguments, options: of the base class.
        connections: the limit of all connections together. At the limit, a new one replaces the
            one that has been without a request for the longest time.
    """

    def __init__(self, *arguments: Any, connections: int = sys.maxsize, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limit = connections
        self._head_bytes = self._chunks = self._body_bytes = self._framing_bytes = 0
        self._messages = 0
        self._cycles: list[RequestResponseCycle] = []
        self._in_head, self._is_idle = True, True
        self._idle_since = self.loop.time()
        self._message = ""
        self._deadline: asyncio.TimerHandle | None = None
        # Of the writes: what a client that reads nothing left unread at the last check, or 0.
        self._unread, self._has_read = 0, False
        self._check: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm(HEAD_SECONDS)
        self._check = self.loop.call_later(WRITE_SECONDS, self._check_writes)
        if len(self.connections) > self._limit:
            self._replace_one()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        if self._check is not None:
            self._check.cancel()
        super().connection_lost(exc)
        # The base class reports the loss only to the newest request.
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()

    @override
    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        message, in_head, body_bytes = self._messages, self._in_head, self._body_bytes
        if in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            if self._head_bytes > HEAD_BYTES:
                self._refuse(f"the head has more than {HEAD_BYTES} bytes; send fewer headers")
        elif not in_head and self._messages == message:
            self._framing_bytes += len(data) - (self._body_bytes - body_bytes)
            if self._framing_bytes > FRAMING_BYTES + self._body_bytes // 4:
                self._refuse("the sizes and the end of the chunks are too long; shorten them")

    @override
    def on_message_begin(self) -> None:
        self._chunks = self._body_bytes = self._framing_bytes = 0
        self._messages += 1
        if self._deadline is None:
            self._arm(HEAD_SECONDS)
        super().on_message_begin()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            # The application has the list of headers already and would read it as one.
            self._fail("the body is followed by headers; send them before it, or leave them out")
        if len(self.headers) >= HEADERS:
            self._fail(f"the head has more than {HEADERS} headers; send fewer headers")
        super().on_header(name, value)

    @override
    def on_message_complete(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._stop_deadline()
        super().on_message_complete()

    @override
    def on_headers_complete(self) -> None:
        self._in_head = self._is_idle = False
        self._stop_deadline()
        super().on_headers_complete()
        if self.cycle is not None:
            self._cycles.append(self.cycle)
        if len(self.pipeline) > PIPELINED:
            self._fail(f"more than {PIPELINED} requests wait for the one before; wait for answers")

    def on_chunk_header(self) -> None:
        """Count the chunks of a body; called by the parser."""
        self._chunks += 1
        if self._chunks > FREE_CHUNKS + self._body_bytes // CHUNK_BYTES:
            self._fail(
                f"the body has {self._chunks} chunks of less than {CHUNK_BYTES} bytes on average; "
                "send larger chunks, or a content-length"
            )

    @override
    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > DRAINED_BYTES:
            self._fail(f"the body has more than {DRAINED_BYTES} bytes; send a shorter request")
        super().on_body(body)

    @override
    def on_response_complete(self) -> None:
        self._cycles = [cycle for cycle in self._cycles if not cycle.response_complete]
        super().on_response_complete()
        if self.cycle.response_complete:
            self._is_idle, self._idle_since = True, self.loop.time()
            if not self._in_head and not self.transport.is_closing():
                # The client may read the response only after it has sent the rest of its body.
                self._arm(DRAINED_SECONDS)

    @override
    def resume_writing(self) -> None:
        self._has_read = True
        super().resume_writing()

    @override
    def send_400_response(self, msg: str) -> None:
        error = ApiError(self._message or f"{msg.rstrip('.')}; send HTTP/1.1")
        body = error.encoded()
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        # A response that has started cannot be replaced, and a request has only one. In a head,
        # the cycle is that of the request before.
        cycle: RequestResponseCycle | None = self.cycle
        is_answered = cycle is not None and cycle.response_complete and not self._in_head
        is_free = cycle is None or not cycle.response_started or cycle.response_complete
        if is_free and not is_answered and not self.pipeline:
            self.transport.write(head.encode() + body)
        self.transport.close()

    def _refuse(self, message: str) -> None:
        self._message = message
        self.send_400_response(message)

    def _fail(self, message: str) -> NoReturn:
        """End the request from within a callback of the parser."""
        self._message = message
        raise ValueError(message)

    def _arm(self, seconds: float) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(seconds, self._timed_out)

    def _timed_out(self) -> None:
        self._deadline = None
        self.transport.close()

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _check_writes(self) -> None:
        """Abort a connection whose client has read nothing since the last check.

        Nothing is written while writes are paused or the connection closes. Then the client has
        read something if the buffer is smaller, or if writes were resumed.
        """
        size = self.transport.get_write_buffer_size()
        if self._unread and size >= self._unread and not self._has_read:
            self.transport.abort()
            return
        is_waiting = self.flow.write_paused or self.transport.is_closing()
        self._unread, self._has_read = size if is_waiting else 0, False
        self._check = self.loop.call_later(WRITE_SECONDS, self._check_writes)

    def _replace_one(self) -> None:
        """Abort the connection that has no request for the longest time, or else this one."""
        protocols = (each for each in self.connections if isinstance(each, Protocol))
        idle = (each for each in protocols if each._is_idle)
        oldest = min(idle, key=lambda each: each._idle_since)
        # It leaves the set later, when its loss is reported.
        self.connections.discard(oldest)
        oldest.transport.abort()


def protocol(limits: Limits) -> Any:
    """The protocol class of uvicorn's configuration, with the limit of connections."""
    return partial(Protocol, connections=limits.connections)
