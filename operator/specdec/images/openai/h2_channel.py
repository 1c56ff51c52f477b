"""A gRPC channel for streams of one request: HTTP/2 on asyncio, without gRPC's own threads.

gRPC's Python library needs 140 µs of processor time for each message that it reads: the message
wakes a thread, and the thread wakes the event loop. This channel needs less than half. It has what
the endpoint uses: streams with one request and many responses, status, cancellation, flow control,
and a new connection when the server ends the old one (`GOAWAY`).
"""

import asyncio

from specdec.client.connection import CONNECT_SECONDS
from specdec.images.openai.h2_connection import Connection
from specdec.images.openai.h2_stream import UNAVAILABLE, Stream, StreamError


class Channel:
    """Streams to one server, on one connection at a time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
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

    async def _connect(self) -> Connection:
        host, _, port = self._url.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, protocol = await loop.create_connection(
                    lambda: Connection(self._url), host, int(port)
                )
        except (OSError, TimeoutError) as error:
            raise StreamError(UNAVAILABLE, f"connection to {self._url} failed") from error
        return protocol
