"""One gRPC call on an HTTP/2 connection: its messages as they arrive, and how it ended."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

# Bytes that the server may send on a stream that is not read. A piece has a few hundred.
WINDOW = 256 << 10
INTERNAL, UNAVAILABLE = 13, 14
_PREFIX = 5
# A message of a piece has a few hundred bytes; only a broken server sends larger ones than this.
_MESSAGE_BYTES = 64 << 20


class Connection(Protocol):
    """What a stream needs of its connection."""

    def reset(self, number: int) -> None:
        """Cancel a call."""

    def half_close(self, number: int) -> None:
        """Report that no request follows."""

    def acknowledge(self, number: int, length: int) -> None:
        """Let the server send more on a stream."""


class StreamError(Exception):
    """A stream ended with a gRPC status other than OK.

    Attributes:
        code: of gRPC; 14 (UNAVAILABLE) for a failed connection.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Stream:
    """One call: `read` returns the messages of the server.

    Attributes:
        direct: called with a message, in the callback that reads the socket, if a reader waits for
            the message. It returns whether it used the message. The reader gets unused messages.
    """

    def __init__(self, connection: Connection, number: int) -> None:
        self.direct: Callable[[bytes], bool] | None = None
        self._connection, self._number = connection, number
        self._buffer = bytearray()
        self._messages: deque[bytes] = deque()
        self._unacknowledged = 0
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
        message = self._messages.popleft()
        if not self._messages:
            self._acknowledge()
        return message

    def cancel(self) -> None:
        """End the call on the server."""
        if not self._ended:
            self._connection.reset(self._number)

    def done(self) -> None:
        """Report that no request follows."""
        if not self._ended:
            self._connection.half_close(self._number)

    def feed(self, data: bytes, length: int) -> None:
        """Add received bytes: messages with a prefix of one flag and four bytes of length.

        Args:
            length: what the bytes take of the window.
        """
        self._unacknowledged += length
        if self._unacknowledged > WINDOW:
            self._fail("the server sends more than the window of the stream")
        if self._ended:
            return
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _PREFIX:
            end = _PREFIX + int.from_bytes(buffer[1:_PREFIX], "big")
            if buffer[0] or end > _MESSAGE_BYTES:
                self._fail("the server sends a message that is compressed or too large")
                return
            if len(buffer) < end:
                break
            message = bytes(buffer[_PREFIX:end])
            del buffer[:end]
            if not self._is_used(message):
                self._messages.append(message)
        if self._messages:
            self._wake()
        else:
            self._acknowledge()

    def end(self, error: StreamError | None = None) -> None:
        """Record that no further message follows."""
        if not self._ended:
            self._ended, self._error = True, error
        self._wake()

    def _fail(self, message: str) -> None:
        """End the call, because its bytes break the protocol."""
        self.cancel()
        self.end(StreamError(INTERNAL, message))

    def _is_used(self, message: bytes) -> bool:
        """Whether `direct` used a message.

        A reader that does not wait, or that has messages, is still busy with an earlier message. A
        later message must not overtake it.
        """
        direct, waiter = self.direct, self._waiter
        if direct is None or waiter is None or waiter.done() or self._messages:
            return False
        try:
            return direct(message)
        except Exception as error:  # noqa: BLE001 -- it ends this stream, and not the connection
            waiter.set_exception(error)
            return True

    def _acknowledge(self) -> None:
        """Let the server send more, once what it sent is read."""
        if self._unacknowledged * 2 >= WINDOW and not self._ended:
            self._connection.acknowledge(self._number, self._unacknowledged)
            self._unacknowledged = 0

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
