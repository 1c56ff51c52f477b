"""Pieces from a gRPC server to HTTP clients: their order, slow clients, clients that leave."""

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from specdec.client.connection import Connection
from specdec.images.openai.app import Endpoint
from specdec.images.openai.checkpoint import ChatFormat
from specdec.images.openai.settings import EndpointSettings
from specdec.images.openai.template import Templates
from specdec.images.openai.triton import Triton
from specdec.servers.bls.requests import REQUESTS
from unit.client import fake_server
from unit.client.fake_server import Script
from unit.openai.listening import listening

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
        async with Triton(Connection(url), "tensorrt_llm_bls", REQUESTS) as triton:
            endpoint = Endpoint(EndpointSettings("llama"), triton, Templates(ChatFormat()))
            async with listening(endpoint.application()) as port, asyncio.timeout(_DEADLINE):
                yield port
    finally:
        server.stop(None)


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"<(\d+)>", text)]


async def test_pieces_of_many_streams_keep_their_order() -> None:
    async with serving(Script(chunks=Counted(200, 10))) as port, httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{port}/v1/completions"
        posts = [client.post(url, json=REQUEST, timeout=_DEADLINE) for _ in range(4)]
        for response in await asyncio.gather(*posts):
            assert numbers(response.text) == list(range(200))
            assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.slow
async def test_client_that_does_not_read_stops_the_server_and_loses_nothing() -> None:
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


async def test_client_that_disconnects_cancels_the_request_on_the_server() -> None:
    chunks = Counted(100_000, 10)
    async with serving(Script(chunks=chunks)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_HEAD.encode() + _BODY)
        await reader.readuntil(b"<100>")
        writer.close()
        await writer.wait_closed()
        assert await asyncio.to_thread(chunks.ended.wait, _DEADLINE)
    assert chunks.taken < 100_000
