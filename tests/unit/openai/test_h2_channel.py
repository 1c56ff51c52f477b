"""The gRPC channel with gRPC's own server: messages, status, cancellation, lost servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from specdec.images.openai.h2_channel import Channel
from specdec.images.openai.h2_stream import StreamError

PATH = "/test.Service/Echo"
_DEADLINE = 30
# This many messages of 8 KiB are far larger than the windows of stream and connection.
MANY = 3000


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Fails, waits or sends many messages on request; else answers with length and bytes."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.sent = 0

    def service(self, details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self.answer)

    def answer(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for request in requests:
            if request.startswith(b"fail"):
                context.abort(grpc.StatusCode.NOT_FOUND, "no ünit %1")
            if request.startswith(b"wait"):
                context.add_callback(self.cancelled.set)
                yield b"first"
                self.cancelled.wait(_DEADLINE)
                return
            if request.startswith(b"many"):
                for number in range(MANY):
                    yield b"%8d" % number * 1024
                    self.sent += 1
                continue
            yield len(request).to_bytes(4, "big")
            yield b""
            yield request


@asynccontextmanager
async def serving(**options: int) -> AsyncIterator[tuple[Channel, Echo, Any]]:
    echo = Echo()
    given = [("grpc.max_receive_message_length", -1), *options.items()]
    server = grpc.server(ThreadPoolExecutor(4), options=given)
    server.add_generic_rpc_handlers((echo,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = Channel(f"127.0.0.1:{port}")
    try:
        async with asyncio.timeout(_DEADLINE):
            yield channel, echo, server
    finally:
        channel.close()
        server.stop(None)


@pytest.mark.parametrize("size", [0, 1, 100, 70_000, 3 << 20])
async def test_messages_of_any_size_arrive_whole(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    async with serving() as (channel, _, _):
        stream = await channel.open(PATH, data)
        assert await stream.read() == size.to_bytes(4, "big")
        assert await stream.read() == b""
        assert await stream.read() == data
        stream.done()
        assert await stream.read() is None


@pytest.mark.slow
async def test_server_waits_for_a_slow_reader() -> None:
    async with serving() as (channel, echo, _):
        stream = await channel.open(PATH, b"many")
        other = await channel.open(PATH, b"a")
        assert await other.read() == (1).to_bytes(4, "big")
        # The server has sent only as many messages as fit into the window of the stream.
        sent = echo.sent
        for number in range(MANY):
            assert await stream.read() == b"%8d" % number * 1024
        stream.done()
        assert await stream.read() is None
    assert sent < MANY == echo.sent


async def test_many_streams_share_a_connection() -> None:
    async with serving() as (channel, _, _):

        async def ask(number: int) -> bytes | None:
            stream = await channel.open(PATH, b"%d" % number * 20_000)
            await stream.read()
            await stream.read()
            answer = await stream.read()
            stream.done()
            return answer

        answers = await asyncio.gather(*map(ask, range(40)))
    assert answers == [b"%d" % number * 20_000 for number in range(40)]


async def test_status_of_the_server_is_an_error() -> None:
    async with serving() as (channel, _, _):
        stream = await channel.open(PATH, b"fail")
        with pytest.raises(StreamError, match=r"^no ünit %1$") as caught:
            await stream.read()
        assert caught.value.code == grpc.StatusCode.NOT_FOUND.value[0]
        # The connection is still usable.
        assert await (await channel.open(PATH, b"a")).read() is not None


async def test_cancellation_reaches_the_server() -> None:
    async with serving() as (channel, echo, _):
        stream = await channel.open(PATH, b"wait")
        assert await stream.read() == b"first"
        stream.cancel()
        stream.cancel()
        assert await asyncio.to_thread(echo.cancelled.wait, _DEADLINE)


async def test_server_that_stops_ends_the_streams() -> None:
    async with serving() as (channel, _, server):
        stream = await channel.open(PATH, b"wait")
        await stream.read()
        server.stop(None)
        with pytest.raises(StreamError):
            await stream.read()
        await asyncio.to_thread(server.wait_for_termination, _DEADLINE)
        with pytest.raises(StreamError) as caught:
            await (await channel.open(PATH, b"a")).read()
        assert caught.value.code == grpc.StatusCode.UNAVAILABLE.value[0]


async def test_connection_that_reaches_its_age_is_replaced() -> None:
    options = {"grpc.max_connection_age_ms": 50, "grpc.max_connection_age_grace_ms": 60_000}
    async with serving(**options) as (channel, echo, _):
        old = await channel.open(PATH, b"wait")
        assert await old.read() == b"first"
        first = channel._connection
        while channel._connection is first:
            stream = await channel.open(PATH, b"new")
            assert await stream.read() == (3).to_bytes(4, "big")
            stream.cancel()
        # The stream on the old connection continues.
        echo.cancelled.set()
        assert await old.read() is None


async def test_address_without_server_is_unavailable() -> None:
    async with serving() as (channel, _, server):
        server.stop(None).wait()
        with pytest.raises(StreamError, match=r"connection"):
            await (await channel.open(PATH, b"a")).read()
