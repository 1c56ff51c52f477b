"""Bodies in arrival, connections and writes: hostile clients block no other client."""

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from specdec.images.openai import http, intake
from specdec.images.openai.app import Endpoint
from specdec.images.openai.limits import Limits
from specdec.images.openai.proxy.app import Proxy, ProxySettings
from specdec.images.openai.proxy.upstream import Upstream
from specdec.images.openai.settings import EndpointSettings
from specdec.servers.kind import kind
from unit.openai.fake_backend import FakeBackend, endpoint, pieces
from unit.openai.listening import listening
from unit.openai.test_http import BODY, exchange, with_length

_DEADLINE = 60
KIND = kind("trtllm_serve")
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Clients(AsyncExitStack):
    """Connections to a server, which are closed at the end."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    async def send(self, data: bytes) -> Connection:
        """Open a connection and write."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.callback(writer.close)
        writer.write(data)
        return reader, writer


async def answered(connection: Connection) -> bytes:
    """Read until the server closes the connection."""
    async with asyncio.timeout(_DEADLINE):
        return await connection[0].read()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a state of the server, which runs in the same loop."""
    async with asyncio.timeout(_DEADLINE):
        while not condition():  # noqa: ASYNC110 -- the server has no event for it
            await asyncio.sleep(0)


async def arriving(bodies: intake.Intake, count: int) -> None:
    await until(lambda: len(bodies._arrivals) == count)


async def test_bodies_that_do_not_arrive_block_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 connections with one byte each gave everybody else status 429 for 30 s."""
    monkeypatch.setattr(intake, "BODIES", 4)
    monkeypatch.setattr(http, "DRAINED_SECONDS", 0.1)
    limits = Limits(in_flight=2)
    served = endpoint(FakeBackend(pieces("ok")), EndpointSettings("llama", limits=limits))
    async with listening(served.application()) as port, Clients(port) as clients:
        stalled = [await clients.send(with_length(100) + b"{") for _ in range(4)]
        await arriving(served._intake, 4)
        assert (await exchange(port, with_length(len(BODY)), BODY))[0] == 200
        # Another stalled body replaces the slowest one.
        await clients.send(with_length(100) + b"{" * 50)
        answer = await answered(stalled[0])
        assert b"429" in answer.split(b"\r\n")[0]
        assert b"retry-after: 1" in answer
        assert served._intake.in_flight == 0


async def test_bytes_of_bodies_in_arrival_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """250 stalled bodies of 4 MiB needed 1.13 GB."""
    monkeypatch.setattr(Limits, "arriving_bytes", 3_000_000)
    monkeypatch.setattr(http, "DRAINED_SECONDS", 0.1)
    served = endpoint(FakeBackend(pieces("ok")), EndpointSettings("llama"))
    async with listening(served.application()) as port, Clients(port) as clients:
        part = with_length(2_000_000) + b"{" * 1_200_000
        stalled = [await clients.send(part) for _ in range(4)]
        answers = [asyncio.ensure_future(answered(each)) for each in stalled]
        done, waiting = await asyncio.wait(
            answers, timeout=_DEADLINE, return_when=asyncio.FIRST_COMPLETED
        )
        while len(done) < 2:
            more, waiting = await asyncio.wait(
                waiting, timeout=_DEADLINE, return_when=asyncio.FIRST_COMPLETED
            )
            done |= more
        assert all(b" 429 " in each.result() for each in done)
        assert served._intake._arriving_bytes <= 3_000_000
        assert (await exchange(port, with_length(len(BODY)), BODY))[0] == 200
        for each in waiting:
            each.cancel()


async def test_bytes_of_requests_in_flight_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "held_bytes", 1000)
    backend = FakeBackend(pieces("ok"), held=0)
    served = endpoint(backend, EndpointSettings("llama"))
    body = json.dumps({"model": "llama", "prompt": "x" * 600}).encode()
    async with listening(served.application()) as port, Clients(port) as clients:
        await clients.send(with_length(len(body)) + body)
        await backend.waiting.wait()
        status, answer = await exchange(port, with_length(len(body)), body)
        assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")
        backend.held = None
        assert (await exchange(port, with_length(len(BODY)), BODY))[0] == 200


async def test_a_body_that_makes_progress_gets_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "BODY_BYTES_PER_SECOND", 100)
    limits = Limits(body_seconds=_DEADLINE)
    served = endpoint(FakeBackend(pieces("ok")), EndpointSettings("llama", limits=limits))
    body = BODY[:-1] + b" " * 4000 + b"}"
    async with listening(served.application()) as port, Clients(port) as clients:
        reader, writer = await clients.send(with_length(len(body)) + body[:3000])
        bodies = served._intake
        await until(lambda: any(each.size for each in bodies._arrivals))
        (arrival,) = bodies._arrivals
        assert arrival.timeout.when() == arrival.began + _DEADLINE + 3000 / 100
        writer.write(body[3000:])
        async with asyncio.timeout(_DEADLINE):
            assert b" 200 " in await reader.readuntil(b"\r\n")


async def test_proxy_has_the_same_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "BODIES", 4)
    settings = ProxySettings("served", "own", 8002, Limits(in_flight=2, body_seconds=5), KIND)
    proxy = Proxy(settings, Upstream("127.0.0.1", 1))
    body = json.dumps({"model": "served", "prompt": "a"}).encode()
    async with listening(proxy.application()) as port, Clients(port) as clients:
        for _ in range(5):
            await clients.send(with_length(100) + b"{")
        await arriving(proxy._intake, 4)
        status, answer = await exchange(port, with_length(len(body)), body)
        assert (status, "does not accept connections" in answer["error"]["message"]) == (503, True)
        head = with_length(len(body)).removesuffix(b"\r\n")
        status, _ = await exchange(port, head + b"x-lookup-scope: a\r\n" * 2 + b"\r\n", body)
        assert status == 400


async def test_a_client_that_reads_nothing_loses_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "WRITE_SECONDS", 0.1)
    backend = FakeBackend(pieces(*["x" * 100_000] * 600))
    served = endpoint(backend, EndpointSettings("llama"))
    body = json.dumps({"model": "llama", "prompt": "x", "stream": True}).encode()
    async with listening(served.application()) as port:
        client = socket.create_connection(("127.0.0.1", port))
        with client:
            client.sendall(with_length(len(body)) + body)
            await until(lambda: bool(backend.requests))
            await until(lambda: not served._intake.in_flight)


@pytest.mark.parametrize("kind", ["endpoint", "proxy"])
async def test_an_answer_that_is_not_read_keeps_its_request_in_flight(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It was written into memory at once, and the next request could follow it there."""
    monkeypatch.setattr(http, "WRITE_SECONDS", 0.1)
    text = "x" * (15 << 20)

    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        answer = json.dumps({"text": text}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))
        writer.close()

    server = await asyncio.start_server(upstream, "127.0.0.1", 0)
    served: Endpoint | Proxy = endpoint(FakeBackend(pieces(text)), EndpointSettings("llama"))
    if kind == "proxy":
        address = Upstream("127.0.0.1", server.sockets[0].getsockname()[1])
        served = Proxy(ProxySettings("llama", "own", 8002, Limits(), KIND), address)
    async with server, listening(served.application()) as port, Clients(port) as clients:
        reader, _ = await clients.send(with_length(len(BODY)) + BODY)
        async with asyncio.timeout(_DEADLINE):
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(1 << 20)
        assert served._intake.in_flight == 1
        await until(lambda: not served._intake.in_flight)


async def test_a_client_that_reads_slowly_keeps_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "WRITE_SECONDS", 0.25)
    backend = FakeBackend(pieces(*["x" * 100_000] * 600))
    served = endpoint(backend, EndpointSettings("llama"))
    body = json.dumps({"model": "llama", "prompt": "x", "stream": True}).encode()
    async with listening(served.application()) as port, Clients(port) as clients:
        reader, _ = await clients.send(with_length(len(body)) + body)
        end = b""
        async with asyncio.timeout(_DEADLINE):
            # The events are about 60 MB, which buffers of the system cannot hold.
            while b"[DONE]" not in end:
                end = end[-20:] + await reader.read(400)
                assert not reader.at_eof()


async def test_a_connection_beyond_the_limit_replaces_an_idle_one() -> None:
    served = endpoint(FakeBackend(pieces("ok"), held=0), EndpointSettings("llama"))
    body = json.dumps({"model": "llama", "prompt": "x"}).encode()
    async with listening(served.application(), connections=3) as port, Clients(port) as clients:
        busy = await clients.send(with_length(len(body)) + body)
        await served.backend.waiting.wait()  # type: ignore[attr-defined]
        idle = [await clients.send(b"GET / HTTP/1.1\r\n") for _ in range(3)]
        assert await answered(idle[0]) == b""
        status, _ = await exchange(port, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
        assert status == 404
        assert not busy[0].at_eof()


async def test_many_requests_that_wait_on_a_connection_end_it() -> None:
    backend = FakeBackend(pieces("ok"), held=0)
    served = endpoint(backend, EndpointSettings("llama"))
    async with listening(served.application()) as port, Clients(port) as clients:
        first = with_length(len(BODY)) + BODY
        connection = await clients.send(first + b"GET / HTTP/1.1\r\nhost: h\r\n\r\n" * 1000)
        assert await answered(connection) == b""
        await backend.cancelled.wait()
