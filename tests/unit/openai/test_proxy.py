"""The proxy: what it passes on, and its errors if the server is slow, broken or absent."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from specdec.images.openai.limits import Limits
from specdec.images.openai.proxy import app
from specdec.images.openai.proxy.app import Proxy, ProxySettings
from specdec.images.openai.proxy.checks import Names
from specdec.images.openai.proxy.upstream import Upstream
from specdec.servers.kind import ServerKind, kind

SERVED, OWN, METRICS_PORT = "served", "a" * 64, 8002
KIND = kind("trtllm_serve")
PATH = "/v1/completions"
BODY = {"model": SERVED, "prompt": "a"}
Json = dict[str, Any]


class Server:
    """A server that answers each request with the same bytes; with None, it waits for `end`.

    `health` is its report on its health; without one, it is the same as for all requests.
    """

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.health: bytes | None = None
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        self._end = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((line for line in head.split(b"\r\n") if b"content-length" in line), b": 0")
        self.requests.append(head + await reader.readexactly(int(length.split(b": ")[1])))
        self.asked.set()
        if self.health is not None and head.startswith(b"GET /health "):
            writer.write(self.health)
            writer.close()
            return
        if self.answer is None:
            await self._end.wait()
        writer.write(self.answer or b"")
        writer.close()

    def end(self) -> None:
        self._end.set()


@asynccontextmanager
async def running(
    answer: bytes | None, kind: ServerKind = KIND, **limits: Any
) -> AsyncIterator[tuple[Server, Proxy, httpx.AsyncClient]]:
    """Start a server and its proxy; yield them with a client of the proxy."""
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    proxy = Proxy(
        ProxySettings(SERVED, OWN, METRICS_PORT, Limits(**limits), kind),
        Upstream("127.0.0.1", port),
    )
    transport = httpx.ASGITransport(proxy.application())
    async with httpx.AsyncClient(transport=transport, base_url="http://proxy:8000") as client:
        try:
            yield server, proxy, client
        finally:
            server.end()
            listening.close()


def reply(body: bytes, kind: str = "application/json", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunked(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + end


def message(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["message"])


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"", "the server ended the request (it closed the connection); try again later"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "it closed the connection"),
        (b"SSH-2.0-nothing\r\n\r\n", "the server ended the request (HttpParser"),
        (reply(b'{"message": "no", "code": 500}', status="500 E"), "no; try again later"),
        (reply(b"<html>", status="502 E"), "refused the request without a message"),
    ],
)
async def test_a_broken_server_is_unavailable(answer: bytes, sentence: str) -> None:
    async with running(answer) as (_, proxy, client):
        got = await client.post(PATH, json=BODY)
        assert got.status_code == 503
        assert sentence in message(got)
        assert proxy._intake.in_flight == 0


async def test_an_absent_server_is_unavailable_and_not_ready() -> None:
    proxy = Proxy(
        ProxySettings(SERVED, OWN, METRICS_PORT, Limits(), KIND), Upstream("127.0.0.1", 1)
    )
    transport = httpx.ASGITransport(proxy.application())
    async with httpx.AsyncClient(transport=transport, base_url="http://proxy:8000") as client:
        got = await client.post(PATH, json=BODY)
        assert got.status_code == 503
        assert "does not accept connections" in message(got)
        assert (await client.get("/health/ready")).status_code == 503
        assert (await client.get("/health/live")).status_code == 200
        page = await client.get("http://proxy:8002/metrics")
        assert "specdec_openai_requests_total" in page.text
        assert "vllm:num_requests_running{" not in page.text


async def test_the_servers_refusal_has_openais_shape() -> None:
    answer = reply(b'{"object": "error", "message": "too long", "code": 400}', status="400 B")
    async with running(answer) as (_, _, client):
        got = await client.post(PATH, json=BODY)
        assert (got.status_code, message(got)) == (400, "too long")


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_has_a_time(stream: bool) -> None:
    async with running(None, seconds=0.05) as (_, proxy, client):
        got = await client.post(PATH, json={**BODY, "stream": stream})
        assert (got.status_code, message(got)) == (
            504,
            "the answer took longer than 0.05 s; request fewer tokens",
        )
        assert proxy._intake.in_flight == 0


async def test_more_requests_than_the_limit_are_refused() -> None:
    async with running(None, in_flight=1) as (server, _, client):
        first = asyncio.create_task(client.post(PATH, json=BODY))
        await server.asked.wait()
        second = await client.post(PATH, json=BODY)
        assert (second.status_code, second.headers["retry-after"]) == (429, "1")
        server.answer = reply(b"{}")
        server.end()
        assert (await first).status_code == 200
        assert (await client.post(PATH, json=BODY)).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"x" * 65, 413, "the body has more than 64 bytes"),
        (b"{", 400, "the body is no JSON that can be read"),
        (b"[1]", 400, "the body is a list; send an object"),
        (b'{"model": NaN}', 400, "the body is no JSON that can be read"),
        (b'{"prompt": "a"}', 404, "which is not served here; set it to served"),
    ],
)
async def test_a_bad_body_never_reaches_the_server(
    body: bytes, status: int, sentence: str
) -> None:
    async with running(reply(b"{}"), body_bytes=64) as (server, _, client):
        got = await client.post(PATH, content=body)
        assert got.status_code == status
        assert sentence in message(got)
        assert server.requests == []


async def test_the_body_is_written_anew_and_the_path_is_a_constant() -> None:
    async with running(reply(b"{}")) as (server, _, client):
        body = b'{"model": "other", "prompt": "a",\r\n "model": "served", "seed": 7}'
        got = await client.post(
            f"{PATH}%0A?x=1", content=body, headers={"x-forwarded-for": "10.0.0.1"}
        )
        assert got.status_code == 200
        (request,) = server.requests
        head, _, sent = request.partition(b"\r\n\r\n")
        assert head.split(b"\r\n")[0] == b"POST /v1/completions HTTP/1.1"
        assert b"x-forwarded-for" not in head
        assert json.loads(sent) == {"model": OWN, "prompt": "a", "seed": 7}
        assert sent.count(b'"model"') == 1


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"prompt": ["a", "b"]}, "prompt has 2 prompts, more than the limit of 1; send fewer"),
        ({"prompt": [[1, 2]]}, "prompt.0 is a list, but it should be a valid string"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"n": 2}, "n is 2, but it should be 1"),
        ({"best_of": 64}, "best_of is 64, but it should be 1"),
        ({"use_beam_search": True}, "use_beam_search is true, but it should be false"),
        ({"return_context_logits": True}, "return_context_logits is true, but it should be false"),
        ({"response_format": {"type": "regex", "regex": "(a*)*b"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"max_tokens": 0}, "max_tokens is 0, but it should be greater than or equal to 1"),
        ({"max_tokens": 2**31}, "max_tokens is 2147483648, but it should be less than"),
        ({"logprobs": 10**6}, "logprobs is 1000000, but it should be less than or equal to 20"),
        ({"stop_token_ids": [1] * 65}, "stop_token_ids has 65 items"),
        ({"stop_token_ids": [-1]}, "stop_token_ids.0 is -1"),
        ({"early_stopping": True}, "early_stopping is no parameter of this endpoint"),
        ({"conversation_params": {}}, "conversation_params is no parameter of this endpoint"),
        ({"priority": 1.0}, "priority is no parameter of this endpoint"),
    ],
)
async def test_a_field_beyond_its_limits_never_reaches_the_server(
    fields: Json, sentence: str
) -> None:
    async with running(reply(b"{}")) as (server, _, client):
        got = await client.post(PATH, json={**BODY, **fields})
        assert got.status_code == 400
        assert sentence in message(got)
        assert server.requests == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chat_template", "{{ 1 }}"),
        ("tokenize", True),
        ("continue_final_message", True),
        ("tools", None),
        ("enable_thinking", ["a"]),
        ("enable_thinking", "a" * 257),
    ],
)
async def test_a_client_sends_no_template_and_no_argument_of_the_tokenizer(
    name: str, value: Any
) -> None:
    chat = {"model": SERVED, "messages": [{"role": "user", "content": "a"}]}
    async with running(reply(b"{}")) as (server, _, client):
        path = "/v1/chat/completions"
        allowed = {**chat, "chat_template_kwargs": {"enable_thinking": False}}
        assert (await client.post(path, json=allowed)).status_code == 200
        got = await client.post(path, json={**chat, "chat_template_kwargs": {name: value}})
        assert got.status_code == 400
        assert f"chat_template_kwargs.{name}" in message(got)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "served", "prompt": "a", "max_tokens": 1e400}',
        b'{"model": "served", "prompt": "a", "temperature": 1e400}',
        b'{"model": "served", "prompt": "a", "seed": 1e400}',
    ],
)
async def test_a_number_without_limit_is_one_sentence(body: bytes) -> None:
    """It was status 503 with a traceback in the log."""
    async with running(reply(b"{}")) as (server, _, client):
        got = await client.post(PATH, content=body)
        assert (got.status_code, "is inf, but it should be" in message(got)) == (400, True)
        assert server.requests == []


async def test_a_number_without_limit_in_a_tool_is_one_sentence() -> None:
    chat = {
        "model": SERVED,
        "messages": [{"role": "user", "content": "a"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": 777}}}],
    }
    body = json.dumps(chat).replace("777", "1e400").encode()
    async with running(reply(b"{}")) as (_, _, client):
        got = await client.post("/v1/chat/completions", content=body)
        assert got.status_code == 400
        assert "a number that is too large; send a smaller one" in message(got)


async def test_fields_of_messages_that_are_not_known_do_not_reach_the_server() -> None:
    part = {"type": "text", "text": "a", "image_url": {"url": "http://169.254.169.254/"}}
    chat = {
        "model": SERVED,
        "messages": [{"role": "user", "content": [part], "audio": {"id": "x"}}],
    }
    async with running(reply(b"{}")) as (server, _, client):
        assert (await client.post("/v1/chat/completions", json=chat)).status_code == 200
        sent = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
        parts = [{"type": "text", "text": "a"}]
        assert sent == {"model": OWN, "messages": [{"role": "user", "content": parts}]}


async def test_whole_answers_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "ANSWER_BYTES", 1000)
    async with running(reply(b'"' + b"x" * 900 + b'"')) as (server, proxy, client):
        for _ in range(3):
            assert (await client.post(PATH, json=BODY)).status_code == 200
        server.answer = reply(b'"' + b"x" * 1000 + b'"')
        got = await client.post(PATH, json=BODY)
        assert got.status_code == 503
        assert message(got) == "the answers that are being sent have 1000 bytes; try again later"
        assert (proxy._answer_bytes, proxy._intake.in_flight) == (0, 0)


async def test_an_empty_answer_is_passed_on() -> None:
    async with running(reply(b"")) as (_, _, client):
        got = await client.post(PATH, json=BODY)
        assert (got.status_code, got.content) == (200, b"")


async def test_a_stream_that_breaks_ends_with_an_error_after_its_last_whole_event() -> None:
    named = f'data: {{"model":"{OWN}"}}\n\n'.encode()
    answer = chunked(named[:20], named[20:] + b'data: {"half', end=b"")
    async with running(answer) as (_, proxy, client):
        got = await client.post(PATH, json={**BODY, "stream": True})
        first, second, rest = got.text.split("\n\n")
        assert first == 'data: {"model":"served"}'
        assert "the server ended the request" in second
        assert rest == ""
        assert proxy._intake.in_flight == 0


def test_only_the_field_is_renamed() -> None:
    names = Names(OWN, 'my "model"')
    text = json.dumps({"text": f'"model":"{OWN}"', "model": OWN})
    renamed = json.loads(names.replaced(text.encode()))
    assert renamed == {"text": f'"model":"{OWN}"', "model": 'my "model"'}
