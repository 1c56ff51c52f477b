"""A real server answers hostile connections with an OpenAI error, or closes them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from specdec.images.openai import http
from specdec.images.openai.limits import Limits
from specdec.images.openai.settings import EndpointSettings
from unit.openai.fake_backend import FakeBackend, endpoint, pieces
from unit.openai.listening import listening

HEAD = "POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
BODY = json.dumps({"model": "llama", "prompt": "x"}).encode()
_DEADLINE = 60


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[int]:
    served = endpoint(
        FakeBackend(pieces("ok")), EndpointSettings("llama", limits=Limits(**limits))
    )
    async with listening(served.application()) as port:
        yield port


async def exchange(port: int, *parts: bytes) -> tuple[int, dict[str, Any]]:
    """Write raw bytes, read one response, and return its status and its JSON."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sending = asyncio.ensure_future(_write(writer, parts))
    try:
        async with asyncio.timeout(_DEADLINE):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.split("content-length: ")[1].split("\r\n")[0])
            body = json.loads(await reader.readexactly(length))
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.close()
    return int(head.split()[1]), body


async def _write(writer: asyncio.StreamWriter, parts: tuple[bytes, ...]) -> None:
    for part in parts:
        writer.write(part)
        await writer.drain()


def chunked(size: int, count: int) -> bytes:
    return (b"%x\r\n" % size + b" " * size + b"\r\n") * count


def with_length(length: int) -> bytes:
    return f"{HEAD}content-length: {length}\r\n\r\n".encode()


CHUNKED = f"{HEAD}transfer-encoding: chunked\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("parts", "status", "sentence"),
    [
        ((CHUNKED, chunked(1, 600_000)), 400, "chunks of less than 64 bytes on average"),
        ((with_length(60_000), b"[" * 60_000), 400, "no JSON that can be read"),
        ((with_length(200_000), b"[" * 200_000), 400, "has more than 65536 JSON values"),
        ((with_length(50 << 20), b" " * (50 << 20)), 413, "the body has more than 4194304 bytes"),
        ((CHUNKED, chunked(1 << 20, 50)), 413, "the body has more than 4194304 bytes"),
        ((b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 50_000), 400, "the head has more than 128 headers"),
        ((b"GET / HTTP/1.1\r\na: ", b"b" * 300_000), 400, "the head has more than 32768 bytes"),
        ((CHUNKED, b"0\r\nx-lookup-scope: other\r\n\r\n"), 400, "the body is followed by headers"),
        ((CHUNKED, b"0\r\na: ", b"b" * 20_000_000), 400, "the end of the chunks are too long"),
        ((CHUNKED, b"0\r\n", b"a: b\r\n" * 20_000), 400, "the body is followed by headers"),
        ((CHUNKED, b"1;", b"e" * 20_000_000), 400, "the sizes and the end of the chunks"),
        ((b"\x16\x03\x01 TLS, not HTTP\r\n\r\n",), 400, "Invalid HTTP request received"),
        ((CHUNKED, b"zz\r\n"), 400, "Invalid HTTP request received"),
    ],
    ids=[
        *("chunks", "nested", "values", "length", "large", "headers", "head", "trailer"),
        *("long trailer", "trailers", "chunk extension", "tls", "broken"),
    ],
)
async def test_hostile_request_is_an_openai_error(
    parts: tuple[bytes, ...], status: int, sentence: str
) -> None:
    async with serving() as port:
        answer, body = await exchange(port, *parts)
        assert (answer, sentence in body["error"]["message"]) == (status, True), body
        # The server still serves another client.
        assert (await exchange(port, with_length(len(BODY)), BODY))[0] == 200


async def test_ordinary_chunks_are_accepted() -> None:
    body = BODY[:-1] + b" " * 2000 + b"}"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body[:900])
    rest = b"%x\r\n" % len(body[900:]) + body[900:] + b"\r\n0\r\n\r\n"
    async with serving() as port:
        assert (await exchange(port, CHUNKED, chunks, rest))[0] == 200


async def test_slow_body_is_refused() -> None:
    async with serving(body_seconds=0.1) as port:
        status, body = await exchange(port, with_length(100), b"{")
    assert (status, body["error"]["code"]) == (408, "request_timeout")


async def test_slow_body_ends_its_connection() -> None:
    async with serving(body_seconds=0.1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(with_length(100) + b"{")
        async with asyncio.timeout(_DEADLINE):
            answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("refused", [b"x" * 10, b""])
async def test_rest_of_a_refused_body_is_read_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch, refused: bytes
) -> None:
    monkeypatch.setattr(http, "DRAINED_SECONDS", 0.1)
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(with_length(50 << 20) + refused)
        async with asyncio.timeout(_DEADLINE):
            answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_trailers_after_a_refusal_get_no_second_response() -> None:
    async with serving(body_bytes=1000) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED + chunked(2000, 1) + b"0\r\na: b\r\n\r\n")
        async with asyncio.timeout(_DEADLINE):
            answer = await reader.read()
        writer.close()
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_two_scopes_are_refused() -> None:
    """A gateway that adds its header, and does not replace the client's, leaves two of them."""
    head = with_length(len(BODY)).removesuffix(b"\r\n")
    async with serving() as port:
        once = await exchange(port, head + b"x-lookup-scope: a\r\n\r\n", BODY)
        twice = await exchange(port, head + b"x-lookup-scope: a\r\n" * 2 + b"\r\n", BODY)
    assert once[0] == 200
    assert twice[0] == 400
    assert (
        twice[1]["error"]["message"] == "the header x-lookup-scope is there 2 times; send it once"
    )


async def test_slow_head_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.1)
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n")
        async with asyncio.timeout(_DEADLINE):
            assert await reader.read() == b""
        writer.close()


async def test_connection_is_kept_for_further_requests() -> None:
    async with (
        serving() as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        for _ in range(3):
            response = await client.post("/v1/completions", content=BODY)
            assert response.json()["choices"][0]["text"] == "ok"
            assert response.extensions["http_version"] == b"HTTP/1.1"
