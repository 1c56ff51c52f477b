"""One gRPC call on an HTTP/2 connection: its messages as they arrive, and how it ended."""

import asyncio
from collections import deque
from typing import Protocol

# Bytes that the server may send on a stream whose reader does not read. A piece has some hundred.
WINDOW = 256 << 10
UNAVAILABLE = 14
_PREFIX = 5


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
    """One call: `read` returns the messages of the server."""

    def __init__(self, connection: Connection, number: int) -> None:
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

    def feed(self, data: bytes) -> None:
        """Add received bytes: messages with a prefix of one flag and four bytes of length."""
        buffer = self._buffer
        buffer += data
        self._unacknowledged += len(data)
        while len(buffer) >= _PREFIX:
            end = _PREFIX + int.from_bytes(buffer[1:_PREFIX], "big")
            if len(buffer) < end:
                break
            self._messages.append(bytes(buffer[_PREFIX:end]))
            del buffer[:end]
        if self._messages:
            self._wake()
        else:
            self._acknowledge()

    def end(self, error: StreamError | None = None) -> None:
        """No further message follows."""
        if not self._ended:
            self._ended, self._error = True, error
        self._wake()

    def _acknowledge(self) -> None:
        """Let the server send more, once what it sent is read."""
        if self._unacknowledged * 2 >= WINDOW and not self._ended:
            self._connection.acknowledge(self._number, self._unacknowledged)
            self._unacknowledged = 0

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
