"""Pieces pass from socket to socket in one callback: order, failures, slow clients."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from specdec.client.connection import Connection
from specdec.images.openai import http
from specdec.images.openai.app import Endpoint
from specdec.images.openai.checkpoint import ChatFormat
from specdec.images.openai.http import Body
from specdec.images.openai.settings import Settings
from specdec.images.openai.template import Templates
from specdec.images.openai.triton import Triton
from unit.client import fake_server
from unit.client.fake_server import Script
from unit.openai.listening import listening
from unit.openai.raw_server import data, message, raw_server

_DEADLINE = 120
REQUEST = {"model": "llama", "prompt": "x", "stream": True}
# These pieces are many times larger than all buffers between the server and the client.
MANY, PIECE_BYTES = 3000, 8192
_BODY = json.dumps(REQUEST).encode()
_HEAD = f"POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: {len(_BODY)}\r\n\r\n"


class Counted:
    """Numbered pieces, and how many of them the server has taken."""

    def __init__(self, count: int, size: int) -> None:
        self._count, self._size = count, size
        self.taken = 0
        self.ended = threading.Event()

    def __iter__(self) -> Iterator[str]:
        try:
            for number in range(self._count):
                self.taken += 1
                yield f"<{number}>".ljust(self._size, ".")
        finally:
            self.ended.set()


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[int]:
    """Start an endpoint in front of a scripted server and yield its port."""
    server, url = fake_server.serve(script)
    try:
        async with Triton(Connection(url), "tensorrt_llm_bls") as triton:
            endpoint = Endpoint(Settings("llama"), triton, Templates(ChatFormat()))
            async with listening(endpoint.application()) as port, asyncio.timeout(_DEADLINE):
                yield port
    finally:
        server.stop(None)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list that receives every part that a callback writes."""
    parts: list[bytes] = []
    write = Body.write

    def recorded(body: Body, part: bytes) -> None:
        parts.append(part)
        write(body, part)

    monkeypatch.setattr(Body, "write", recorded)
    return parts


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"<(\d+)>", text)]


async def test_pieces_of_many_streams_are_written_by_callbacks_in_their_order(
    written: list[bytes],
) -> None:
    async with serving(Script(chunks=Counted(200, 10))) as port, httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{port}/v1/completions"
        posts = [client.post(url, json=REQUEST, timeout=_DEADLINE) for _ in range(4)]
        for response in await asyncio.gather(*posts):
            assert numbers(response.text) == list(range(200))
            assert response.text.endswith("data: [DONE]\n\n")
    assert written


@pytest.mark.slow
async def test_client_that_does_not_read_stops_the_server_and_loses_nothing(
    written: list[bytes],
) -> None:
    chunks = Counted(MANY, PIECE_BYTES)
    async with serving(Script(chunks=chunks)) as port:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.setblocking(False)
        await asyncio.get_running_loop().sock_connect(slow, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=slow, limit=1 << 16)
        writer.write(_HEAD.encode() + _BODY)
        received = bytearray(await reader.readuntil(b"<0>"))
        async with httpx.AsyncClient() as client:
            before, unchanged = -1, 0
            while unchanged < 50:
                await client.get(f"http://127.0.0.1:{port}/health/live")
                unchanged = unchanged + 1 if chunks.taken == before else 0
                before = chunks.taken
        assert 0 < before < MANY
        while not received.endswith(b"\r\n0\r\n\r\n"):
            part = await reader.read(1 << 16)
            assert part, received[-100:]
            received += part
        writer.close()
        await writer.wait_closed()
    assert numbers(received.decode()) == list(range(MANY))
    assert chunks.taken == MANY
    assert written


async def test_client_that_disconnects_cancels_the_request_on_the_server(
    written: list[bytes],
) -> None:
    chunks = Counted(100_000, 10)
    async with serving(Script(chunks=chunks)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_HEAD.encode() + _BODY)
        await reader.readuntil(b"<100>")
        writer.close()
        await writer.wait_closed()
        assert await asyncio.to_thread(chunks.ended.wait, _DEADLINE)
    assert chunks.taken < 100_000
    assert written


async def test_message_does_not_overtake_one_that_its_reader_still_handles() -> None:
    async with raw_server() as server:
        peer, (stream,) = await server.open()
        direct: list[bytes] = []

        def take(received: bytes) -> bool:
            if received == b"for the reader":
                return False
            direct.append(received)
            return True

        stream.direct = take
        reading = asyncio.ensure_future(stream.read())
        await asyncio.sleep(0)  # The reader waits now.
        peer.send(data(1, message(b"a")))
        peer.send(data(1, message(b"for the reader") + message(b"b")))
        assert await reading == b"for the reader"
        assert direct == [b"a"]
        assert await stream.read() == b"b"


async def test_failure_in_a_callback_ends_its_stream_alone() -> None:
    async with raw_server() as server:
        peer, (failing, other) = await server.open(2)

        def fail(received: bytes) -> bool:
            raise ValueError(f"cannot handle {received!r}")

        failing.direct = fail
        reading = asyncio.ensure_future(failing.read())
        others = asyncio.ensure_future(other.read())
        await asyncio.sleep(0)  # Both readers wait now.
        peer.send(data(1, message(b"a")), data(1, message(b"more")), data(3, message(b"b")))
        with pytest.raises(ValueError, match="cannot handle b'a'"):
            await reading
        assert await others == b"b"


async def test_body_writes_what_uvicorn_would_send() -> None:
    seen: list[bool] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        body: Body = scope["extensions"][http.EXTENSION][http.BODY]
        seen.append(body.is_writable)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        seen.append(body.is_writable)
        await send({"type": "http.response.body", "body": b"same", "more_body": True})
        body.write(b"same")
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        seen.append(body.is_writable)

    async with listening(application) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
        received = await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    message = (
        "uvicorn no longer writes chunks or reports the state of a response as "
        "specdec.images.openai.http.Body expects: change Body to match, and see ADR 0138"
    )
    assert received.partition(b"\r\n\r\n")[2] == b"4\r\nsame\r\n" * 2 + b"0\r\n\r\n", message
    assert seen == [False, True, False], message
