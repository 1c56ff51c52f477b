"""The events of a watch as they come over a connection."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from specdec import cluster as api
from specdec.cluster import Cluster, Transient

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@asynccontextmanager
async def watching(respond: Respond) -> AsyncIterator[Cluster]:
    """Yield access to a server that answers every request with what `respond` writes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        await respond(writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with ApiClient(Configuration(host=f"http://127.0.0.1:{port}")) as client:
            yield Cluster(client)


async def test_events_of_any_length_and_in_any_pieces_arrive() -> None:
    """The operator ended at a ConfigMap of more than 128 KiB."""
    sent = [{"type": "ADDED", "object": {"data": "x" * size}} for size in (1, 500_000, 2, 200_000)]

    async def respond(writer: asyncio.StreamWriter) -> None:
        text = b"".join(json.dumps(event).encode() + b"\n" for event in sent)
        for start in range(0, len(text), 70_001):
            writer.write(chunk(text[start : start + 70_001]))
            await writer.drain()
        writer.write(chunk(b""))

    async with watching(respond) as cluster:
        assert [e async for e in cluster.stream("v1", "ConfigMap", None, "", "1")] == sent


async def test_cut_event_is_an_error() -> None:
    async def respond(writer: asyncio.StreamWriter) -> None:
        writer.write(chunk(b'{"type": "ADDED", "obj'))

    async with watching(respond) as cluster:
        with pytest.raises(Transient):
            _ = [event async for event in cluster.stream("v1", "ConfigMap", None, "", "1")]


async def test_silent_watch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "WATCH_SILENCE", 0.2)
    ended = asyncio.Event()

    async def respond(writer: asyncio.StreamWriter) -> None:
        writer.write(chunk(b'{"type": "ADDED", "object": {}}\n'))
        await ended.wait()

    async with watching(respond) as cluster:
        with pytest.raises(Transient):
            _ = [event async for event in cluster.stream("v1", "ConfigMap", None, "", "1")]
        ended.set()
