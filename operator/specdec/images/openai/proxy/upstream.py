"""Requests to the server behind the proxy: one connection for each, over HTTP/1.1.

A connection that stays open between requests would count as a request in flight for the hook that
drains the server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httptools

from specdec.images.openai.errors import ApiError, unavailable

_BLOCK = 64 << 10
# The limit of a body that is read as a whole.
MOST_BYTES = 16 << 20


@dataclass
class Reply:
    """A reply of the server, whose body arrives in parts.

    Attributes:
        deadline: the time of the loop at which reading fails.
        status: of HTTP.
        content_type: of the body.
    """

    reader: asyncio.StreamReader
    deadline: float
    status: int = 0
    content_type: str = ""
    _parts: list[bytes] = field(default_factory=list)
    _head: bool = False
    _complete: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if name.lower() == b"content-type":
            self.content_type = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._head = True

    def on_body(self, part: bytes) -> None:
        """Called by the parser."""
        self._parts.append(part)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._complete = True

    async def begin(self) -> None:
        """Read the head.

        Raises:
            ApiError: the connection ended.
            TimeoutError: the deadline has passed.
        """
        self._parser = httptools.HttpResponseParser(self)
        while not self._head:
            await self._feed()
        self.status = self._parser.get_status_code()

    async def parts(self) -> AsyncIterator[bytes]:
        """The body in parts, as it arrives.

        Raises:
            ApiError: the connection ended before the body did.
            TimeoutError: the deadline has passed.
        """
        while True:
            parts, self._parts = self._parts, []
            for part in parts:
                yield part
            if self._complete:
                return
            await self._feed()

    async def read(self, grow: Callable[[int], None] = lambda _: None) -> bytes:
        """The whole body.

        Args:
            grow: called with the bytes of each part; an error that it raises ends the reading.

        Raises:
            ApiError: the connection ended before the body did, or the body is too large.
            TimeoutError: the deadline has passed.
        """
        body = bytearray()
        async for part in self.parts():
            body += part
            grow(len(part))
            if len(body) > MOST_BYTES:
                raise _broken(f"its answer has more than {MOST_BYTES} bytes")
        return bytes(body)

    async def _feed(self) -> None:
        try:
            async with asyncio.timeout_at(self.deadline):
                data = await self.reader.read(_BLOCK)
            if data:
                self._parser.feed_data(data)
            elif not self._complete:
                raise _broken("it closed the connection")
        except TimeoutError:
            raise
        except (OSError, httptools.HttpParserError) as error:
            raise _broken(type(error).__name__) from error


@dataclass(frozen=True)
class Upstream:
    """A server on this machine; `host` and `port` are its address."""

    host: str
    port: int

    @asynccontextmanager
    async def request(
        self, method: str, path: str, seconds: float, body: bytes | None = None
    ) -> AsyncIterator[Reply]:
        """Send a request, and read the head of its reply; the context's end closes the connection.

        Args:
            method: of HTTP.
            path: one of this program's constants, never text of a client.
            seconds: for the whole reply.
            body: JSON.

        Raises:
            ApiError: the server is not reachable.
            TimeoutError: the head did not arrive in time.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            reader, writer = await asyncio.open_connection(self.host, self.port, limit=_BLOCK)
        except OSError as error:
            raise unavailable(
                f"the server does not accept connections ({type(error).__name__}); try again later"
            ) from error
        try:
            reply = Reply(reader, deadline)
            writer.write(self._head(method, path, body))
            if body is not None:
                writer.write(body)
            await _drained(writer)
            await reply.begin()
            yield reply
        finally:
            # The server ends a request whose client has left.
            writer.transport.abort()

    def _head(self, method: str, path: str, body: bytes | None) -> bytes:
        lines: Sequence[str] = (
            f"{method} {path} HTTP/1.1",
            f"host: {self.host}:{self.port}",
            "connection: close",
            "accept: */*",
            *(
                ("content-type: application/json", f"content-length: {len(body)}")
                if body is not None
                else ()
            ),
        )
        return "\r\n".join((*lines, "", "")).encode("ascii")


async def _drained(writer: asyncio.StreamWriter) -> None:
    try:
        await writer.drain()
    except OSError as error:
        raise _broken(type(error).__name__) from error


def _broken(why: str) -> ApiError:
    return unavailable(f"the server ended the request ({why}); try again later")
