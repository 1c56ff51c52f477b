"""The proxy in front of vLLM's own server: what each operation takes, and the form of errors."""

import asyncio
import json
from typing import Any

import pytest

from specdec.servers.kind import kind
from unit.openai.test_proxy import OWN, SERVED, chunked, message, reply, running

VLLM = kind("vllm_serve")
Json = dict[str, Any]
USER: Json = {"role": "user", "content": "hi"}
IMAGE: Json = {"url": "http://169.254.169.254/"}
BODIES: dict[str, Json] = {
    "/v1/completions": {"prompt": "a"},
    "/v1/chat/completions": {"messages": [USER]},
    "/v1/responses": {"input": "a"},
    "/v1/messages": {"messages": [USER], "max_tokens": 4},
}
SCHEMA = {"name": "n", "schema": {"type": "object"}}


@pytest.mark.parametrize("path", BODIES)
async def test_each_operation_reaches_the_server(path: str) -> None:
    async with running(reply(b"{}"), kind=VLLM) as (server, _, client):
        got = await client.post(path, json={"model": SERVED, **BODIES[path]})
        assert got.status_code == 200
        head, _, sent = server.requests[0].partition(b"\r\n\r\n")
        assert head.startswith(f"POST {path} HTTP/1.1".encode())
        assert json.loads(sent) == {"model": OWN, **BODIES[path]}


@pytest.mark.parametrize(
    "path",
    [
        *("/tokenize", "/detokenize", "/invocations", "/ping", "/scale_elastic_ep", "/sleep"),
        *("/v1/load_lora_adapter", "/v1/messages/count_tokens", "/v1/responses/1/cancel"),
        *("/v1/embeddings", "/collective_rpc", "/reset_prefix_cache", "/generative_scoring"),
        *("/inference/v1/generate", "/v1/chat/completions/render", "/start_profile", "/metrics"),
    ],
)
async def test_all_other_operations_are_closed(path: str) -> None:
    async with running(reply(b"{}"), kind=VLLM) as (server, _, client):
        for asked in (path, f"/v1/..{path}", f"//{path[1:]}"):
            assert (await client.post(asked, json={})).status_code in (404, 405), asked
        assert server.requests == []


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (
            "/v1/chat/completions",
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        ),
        ("/v1/completions", {"structured_outputs": {"choice": ["yes", "no"]}, "top_k": -1}),
        ("/v1/responses", {"text": {"format": {"type": "json_schema", **SCHEMA}}}),
        ("/v1/responses", {"input": [{**USER, "content": [{"type": "input_text", "text": "a"}]}]}),
        ("/v1/messages", {"system": [{"type": "text", "text": "a"}], "stop_sequences": ["x"]}),
    ],
)
async def test_a_field_within_its_limits_is_passed_on_as_it_is(path: str, fields: Json) -> None:
    async with running(reply(b"{}"), kind=VLLM) as (server, _, client):
        got = await client.post(path, json={"model": SERVED, **BODIES[path], **fields})
        assert got.status_code == 200, got.text
        sent = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
        assert sent == {"model": OWN, **BODIES[path], **fields}


@pytest.mark.parametrize(
    ("path", "fields", "sentence"),
    [
        (
            "/v1/completions",
            {"structured_outputs": {"regex": "(a*)*b"}},
            "structured_outputs.regex",
        ),
        (
            "/v1/completions",
            {"structured_outputs": {"grammar": "r"}},
            "structured_outputs.grammar",
        ),
        ("/v1/completions", {"prompt_embeds": "x"}, "prompt_embeds is no parameter"),
        ("/v1/completions", {"priority": 1}, "priority is no parameter"),
        ("/v1/completions", {"kv_transfer_params": {}}, "kv_transfer_params is no parameter"),
        ("/v1/completions", {"vllm_xargs": {}}, "vllm_xargs is no parameter"),
        ("/v1/completions", {"n": 17}, "n is 17"),
        ("/v1/completions", {"n": 0}, "n is 0"),
        ("/v1/chat/completions", {"chat_template": "x"}, "chat_template is no parameter"),
        (
            "/v1/chat/completions",
            {"messages": [{**USER, "content": [{"type": "image_url", "image_url": IMAGE}]}]},
            "a part of type image_url",
        ),
        ("/v1/responses", {"background": True}, "background is true, but it should be false"),
        ("/v1/responses", {"previous_response_id": "a"}, "previous_response_id is a"),
        ("/v1/responses", {"tools": [{"type": "mcp"}]}, "tools.0.type is mcp"),
        (
            "/v1/responses",
            {"input": [{**USER, "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input.0.content.0.type is input_image",
        ),
        (
            "/v1/messages",
            {"messages": [{**USER, "content": [{"type": "image", "source": IMAGE}]}]},
            "messages.0.content.0.type is image",
        ),
        ("/v1/messages", {"max_tokens": 0}, "max_tokens is 0"),
    ],
)
async def test_a_field_beyond_its_limits_never_reaches_the_server(
    path: str, fields: Json, sentence: str
) -> None:
    async with running(reply(b"{}"), kind=VLLM) as (server, _, client):
        got = await client.post(path, json={"model": SERVED, **BODIES[path], **fields})
        assert (got.status_code, sentence in message(got)) == (400, True), got.text
        assert server.requests == []


@pytest.mark.parametrize(("path", "named"), [("/v1/messages", True), ("/v1/completions", False)])
async def test_an_error_has_the_form_of_its_api(path: str, named: bool) -> None:
    async with running(reply(b"{}"), kind=VLLM) as (_, _, client):
        got = await client.post(path, json={**BODIES[path], "model": "other"})
        assert got.status_code == 404
        assert (got.json().get("type") == "error") == named


@pytest.mark.parametrize(
    ("path", "health", "status"),
    [
        ("/v1/messages", "200 OK", 400),
        ("/v1/messages", "503 E", 503),
        ("/v1/chat/completions", "200 OK", 503),
    ],
)
async def test_an_error_of_a_healthy_server_is_that_of_the_message(
    path: str, health: str, status: int
) -> None:
    """The server answers each message that it cannot render with status 500."""
    error = {"type": "internal_error", "message": "you must provide a chat template"}
    answer = reply(json.dumps({"type": "error", "error": error}).encode(), status="500 E")
    async with running(answer, kind=VLLM) as (server, _, client):
        server.health = reply(b"", status=health)
        got = await client.post(path, json={"model": SERVED, **BODIES[path]})
        again = "; try again later" if status == 503 else ""
        assert (got.status_code, message(got)) == (status, f"{error['message']}{again}")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages"])
async def test_a_prompt_that_is_too_long_has_a_code(path: str) -> None:
    sentence = "This model's maximum context length is 256 tokens. However, you requested 4."
    status = "500 E" if path == "/v1/messages" else "400 B"
    answer = reply(json.dumps({"error": {"message": sentence}}).encode(), status=status)
    async with running(answer, kind=VLLM) as (server, _, client):
        server.health = reply(b"")
        got = await client.post(path, json={"model": SERVED, **BODIES[path]})
        assert (got.status_code, message(got)) == (400, sentence)
        assert got.json()["error"]["code"] == "context_length_exceeded"


async def test_each_answer_of_a_request_takes_a_place() -> None:
    async with running(None, kind=VLLM, in_flight=3) as (server, proxy, client):
        body = {"model": SERVED, **BODIES["/v1/completions"], "n": 2}
        first = asyncio.create_task(client.post("/v1/completions", json=body))
        await server.asked.wait()
        assert proxy._intake.in_flight == 2
        second = await client.post("/v1/completions", json=body)
        assert (second.status_code, second.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert proxy._intake.in_flight == 2
        server.end()
        await first
        assert proxy._intake.in_flight == 0


async def test_a_stream_with_named_events_ends_with_a_named_error() -> None:
    event = b'event: message_start\ndata: {"type":"message_start"}\n\n'
    async with running(chunked(event, end=b""), kind=VLLM) as (_, _, client):
        body = {"model": SERVED, **BODIES["/v1/messages"], "stream": True}
        got = await client.post("/v1/messages", json=body)
        first, second, rest = got.text.split("\n\n")
        assert first == event.decode().strip()
        assert second.startswith('event: error\ndata: {"type": "error", "error": {"message": ')
        assert rest == ""


async def test_gauges_of_the_servers_page_are_not_repeated() -> None:
    gauge = 'vllm:num_requests_waiting{engine="0",model_name="a"}'
    page = f"# TYPE vllm:num_requests_waiting gauge\n{gauge} 3.0\n".encode()
    async with running(reply(page, "text/plain"), kind=VLLM) as (server, _, client):
        got = await client.get("http://proxy:8002/metrics")
        samples = [line for line in got.text.splitlines() if line.startswith(gauge[:26])]
        assert samples == [f"{gauge} 3.0"]
        assert server.requests[0].startswith(b"GET /metrics HTTP/1.1")
