"""A scripted HTTP/2 server that sends any frames, even frames that break the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import hpack
from hyperframe.frame import DataFrame, Frame, HeadersFrame, SettingsFrame

from specdec.images.openai.h2_channel import Channel
from specdec.images.openai.h2_stream import Stream

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DEADLINE = 60
OK = [(":status", "200"), ("content-type", "application/grpc")]
TRAILERS = [("grpc-status", "0")]


def message(body: bytes) -> bytes:
    """Return a body with the header of a gRPC message."""
    return b"\0" + len(body).to_bytes(4, "big") + body


def data(stream: int, body: bytes, *flags: str) -> Frame:
    """Return a DATA frame."""
    return DataFrame(stream, body, flags=list(flags))


class Peer:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._encoder = hpack.Encoder()

    async def greet(self, settings: dict[int, int]) -> None:
        """Read the preface of the client and send the settings of the server."""
        await self._reader.readexactly(len(_PREFACE))
        self.send(SettingsFrame(0, settings=settings))

    def headers(self, stream: int, fields: list[tuple[str, str]], *flags: str) -> Frame:
        """Return a HEADERS frame."""
        block = self._encoder.encode(fields)
        return HeadersFrame(stream, block, flags=["END_HEADERS", *flags])

    def send(self, *frames: Frame) -> None:
        """Send frames."""
        self.writer.write(b"".join(frame.serialize() for frame in frames))

    async def receive(self, kind: type[Frame], stream: int | None = None) -> Frame:
        """Return the next frame of a kind, and of the given stream unless it is None."""
        while True:
            head = memoryview(await self._reader.readexactly(9))
            frame, length = Frame.parse_frame_header(head)
            frame.parse_body(memoryview(await self._reader.readexactly(length)))
            if isinstance(frame, kind) and stream in (None, frame.stream_id):
                return frame


class RawServer:
    """The server: it queues the connections of its channel in the order of their start."""

    def __init__(self, settings: dict[int, int]) -> None:
        self._settings = settings
        self.writers: list[asyncio.StreamWriter] = []
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()
        self.channel: Channel

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept a connection."""
        self.writers.append(writer)
        peer = Peer(reader, writer)
        await peer.greet(self._settings)
        self._peers.put_nowait(peer)

    async def open(self, count: int = 1) -> tuple[Peer, list[Stream]]:
        """Open streams on a new connection and begin their responses."""
        streams = [await self.channel.open("/a/b", b"request") for _ in range(count)]
        peer = await self.peer()
        for number in range(1, 2 * count, 2):
            await peer.receive(DataFrame, number)
            peer.send(peer.headers(number, OK))
        return peer, streams

    async def peer(self) -> Peer:
        """Wait for the next connection and return it."""
        return await self._peers.get()


@asynccontextmanager
async def raw_server(settings: dict[int, int] | None = None) -> AsyncIterator[RawServer]:
    """Start a server, and yield it with a channel to it."""
    result = RawServer(settings or {})
    server = await asyncio.start_server(result.accept, "127.0.0.1", 0)
    result.channel = Channel(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        async with asyncio.timeout(_DEADLINE):
            yield result
    finally:
        result.channel.close()
        server.close()
        for writer in result.writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
