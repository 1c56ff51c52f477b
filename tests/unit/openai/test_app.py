"""The routes with a scripted server: answers, streams, errors, bounds and disconnects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from specdec.openai.app import Endpoint
from specdec.openai.errors import ApiError, overloaded
from specdec.openai.settings import Limits, Settings
from unit.openai.fake_backend import OLDER, SERVED, FakeBackend, endpoint, pieces

COMPLETION = {"model": "llama", "prompt": "def f"}
CHAT = {"model": "llama", "messages": [{"role": "user", "content": "hi"}]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
SCOPE = {
    "type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"",
    "headers": [], "asgi": {"version": "3.0"}, "http_version": "1.1",
}  # fmt: skip
Json = dict[str, Any]


@asynccontextmanager
async def client(served: Endpoint) -> AsyncIterator[httpx.AsyncClient]:
    await served.templates.start()
    transport = httpx.ASGITransport(served.application())
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as result:
            yield result
    finally:
        await served.templates.close()


async def post(served: Endpoint, path: str, body: Json) -> httpx.Response:
    async with client(served) as http:
        return await http.post(f"/v1/{path}", json=body)


def events(response: httpx.Response) -> list[Json]:
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = response.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]


async def test_completion_is_one_body() -> None:
    backend = FakeBackend(pieces("Hel", "lo"))
    response = await post(endpoint(backend), "completions", {**COMPLETION, "max_tokens": 5})
    body = response.json()
    assert response.status_code == 200
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "logprobs": None, "finish_reason": "stop", "text": "Hello"}
    ]
    assert body["usage"]["total_tokens"] == 7 + 2
    assert body["usage"]["completion_tokens_details"] == {
        "accepted_prediction_tokens": 2,
        "rejected_prediction_tokens": 2,
    }
    assert "metrics" not in body
    (request,) = backend.requests
    assert (request.prompt, request.max_tokens, request.stream) == ("def f", 5, False)


async def test_answer_at_the_limit_ends_by_length() -> None:
    backend = FakeBackend(pieces("a", "b"))
    response = await post(endpoint(backend), "completions", {**COMPLETION, "max_tokens": 2})
    assert response.json()["choices"][0]["finish_reason"] == "length"


async def test_completion_streams_a_piece_for_each_of_the_server() -> None:
    body = {**COMPLETION, "stream": True}
    first, second, last = events(
        await post(endpoint(FakeBackend(pieces('"Hä', "😀\n"))), "completions", body)
    )
    assert [e["choices"][0]["text"] for e in (first, second, last)] == ['"Hä', "😀\n", ""]
    assert [e["choices"][0]["finish_reason"] for e in (first, second, last)] == [
        None,
        None,
        "stop",
    ]
    assert first["id"] == last["id"]
    assert "usage" not in first


async def test_chat_streams_role_content_and_usage() -> None:
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    backend = FakeBackend(pieces("a", "b"))
    result = events(await post(endpoint(backend), "chat/completions", body))
    deltas = [event["choices"][0]["delta"] for event in result[:-1]]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "a"}, {"content": "b"}, {}]
    assert [event["usage"] for event in result[:-1]] == [None] * 4
    assert result[-1]["choices"] == []
    assert result[-1]["usage"]["prompt_tokens"] == 7
    assert backend.requests[0].prompt == "<user>hi<assistant>"
    # A chat without a limit may use the whole sequence.
    assert backend.requests[0].max_tokens == SERVED.max_seq_len - 1


@pytest.mark.parametrize("stream", [False, True])
async def test_acceptance_is_reported_when_requested(stream: bool) -> None:
    body = {**COMPLETION, "stream": stream, "include_metrics": True}
    response = await post(endpoint(FakeBackend(pieces("a", "b"))), "completions", body)
    answer = events(response)[-1] if stream else response.json()
    assert answer["metrics"]["speculative_decoding"] == {
        "draft_acceptance_rate": 0.5,
        "num_accepted_draft_tokens": 2,
        "num_draft_tokens": 4,
        "acceptance_histogram": [0, 2],
        "num_spec_steps": 2,
        "num_spec_tokens": 4,
        "mean_acceptance_length": 2.0,
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_string_ends_the_text_and_is_no_part_of_it(stream: bool) -> None:
    body = {**COMPLETION, "stream": stream, "stop": ["END"]}
    backend = FakeBackend(pieces("one E", "ND two"))
    response = await post(endpoint(backend), "completions", body)
    answers = events(response) if stream else [response.json()]
    assert "".join(a["choices"][0]["text"] for a in answers) == "one "
    assert answers[-1]["choices"][0]["finish_reason"] == "stop"
    assert backend.requests[0].stop_words == ("END",)


async def test_ensemble_is_cancelled_at_a_stop_string() -> None:
    backend = FakeBackend([*pieces("a.b"), ApiError("read after the end")])
    served = endpoint(backend, Settings("llama", model="ensemble"))
    response = await post(served, "completions", {**COMPLETION, "stop": "."})
    assert response.json()["choices"][0]["text"] == "a"
    assert backend.cancelled.is_set()


@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_and_tool_calls_are_split(stream: bool) -> None:
    served = endpoint(
        FakeBackend(
            pieces(
                "<think>hm</th",
                'ink>Go.<tool_call>{"name": "weather", ',
                '"arguments": {}}</',
                "tool_call>",
            )
        ),
        Settings("llama", tool_parser="hermes", reasoning_parser="deepseek_r1"),
    )  # fmt: skip
    response = await post(served, "chat/completions", {**CHAT, "tools": [TOOL], "stream": stream})
    if stream:
        result = events(response)
        deltas = [event["choices"][0]["delta"] for event in result]
        (calls,) = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
        assert calls[0].pop("index") == 0
        reasoning = "".join(delta.get("reasoning_content", "") for delta in deltas)
        content = "".join(delta.get("content") or "" for delta in deltas)
        choice = result[-1]["choices"][0]
    else:
        choice = response.json()["choices"][0]
        message = choice["message"]
        calls, content = message["tool_calls"], message["content"]
        reasoning = message["reasoning_content"]
    assert (reasoning, content) == ("hm", "Go.")
    assert calls[0]["function"] == {"name": "weather", "arguments": "{}"}
    assert choice["finish_reason"] == "tool_calls"


async def test_text_of_a_call_is_content_without_tools() -> None:
    served = endpoint(
        FakeBackend(pieces("<tool_call>{}")), Settings("llama", tool_parser="hermes")
    )
    response = await post(served, "chat/completions", CHAT)
    message = response.json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "<tool_call>{}", "refusal": None}


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_belong_to_the_text_of_their_piece(stream: bool) -> None:
    script = pieces("ab", "c")
    script[0] = replace(script[0], tokens=2, log_probs=(-1.0, float("-inf")))  # type: ignore[type-var]
    body = {**CHAT, "logprobs": True, "stream": stream}
    backend = FakeBackend(script)
    response = await post(endpoint(backend), "chat/completions", body)
    choices = [a["choices"][0] for a in (events(response) if stream else [response.json()])]
    entries = [e for c in choices if c["logprobs"] for e in c["logprobs"]["content"]]
    assert [(e["token"], e["logprob"]) for e in entries] == [
        ("ab", -1.0),
        ("", -9999.0),
        ("c", -0.5),
    ]
    # Without pieces, the text of the answer would belong to its first token.
    assert backend.requests[0].stream


async def test_older_release_counts_by_probabilities_and_preprocessing() -> None:
    script = [replace(piece, prompt_tokens=None) for piece in pieces("a", "b")]  # type: ignore[type-var]
    backend = FakeBackend(script, OLDER)
    response = await post(endpoint(backend), "completions", {**COMPLETION, "max_tokens": 2})
    body = response.json()
    assert backend.requests[0].log_probs
    assert body["usage"]["prompt_tokens"] == len("def f")
    assert body["choices"][0] == {
        "index": 0, "logprobs": None, "finish_reason": "length", "text": "ab",
    }  # fmt: skip


async def test_error_before_the_first_piece_has_its_status() -> None:
    backend = FakeBackend([overloaded("the queue is full: try again later")])
    response = await post(endpoint(backend), "completions", {**COMPLETION, "stream": True})
    assert response.status_code == 429
    assert response.headers["retry-after"] == "1"
    assert response.json()["error"] == {
        "message": "the queue is full: try again later",
        "type": "rate_limit_error",
        "param": None,
        "code": "rate_limit_exceeded",
    }


async def test_later_error_ends_the_stream_as_an_event() -> None:
    backend = FakeBackend([*pieces("a"), ApiError("it broke", status=500, kind="server_error")])
    response = await post(endpoint(backend), "completions", {**COMPLETION, "stream": True})
    *_, last, end = response.text.split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == "it broke"
    assert end == ""


async def test_models_are_listed_by_the_served_name() -> None:
    async with client(endpoint(FakeBackend())) as http:
        listed = (await http.get("/v1/models")).json()["data"]
        assert (await http.get("/v1/models/llama")).json() == listed[0]
        missing = await http.get("/v1/models/other")
    assert [model["id"] for model in listed] == ["llama"]
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/completions", 405), ("POST", "/v1/embeddings", 404), ("GET", "/", 404)],
)
async def test_unknown_operation_is_an_openai_error(method: str, path: str, status: int) -> None:
    async with client(endpoint(FakeBackend())) as http:
        response = await http.request(method, path)
    assert response.status_code == status
    assert path in response.json()["error"]["message"]


async def test_readiness_follows_the_server_and_the_drain() -> None:
    backend = FakeBackend()
    served = endpoint(backend)
    async with client(served) as http:
        assert (await http.get("/health/ready")).status_code == 200
        backend.is_ready = False
        assert (await http.get("/health/ready")).status_code == 503
        assert (await http.get("/health/live")).status_code == 200
        backend.is_ready, served.draining = True, True
        assert (await http.get("/health/ready")).status_code == 503


async def test_requests_beyond_the_bound_are_refused_and_counted() -> None:
    backend = FakeBackend(pieces("a"), held=0)
    served = endpoint(backend, Settings("llama", limits=Limits(in_flight=1)))
    async with client(served) as http:
        running = asyncio.ensure_future(http.post("/v1/completions", json=COMPLETION))
        await backend.waiting.wait()
        refused = await http.post("/v1/completions", json=COMPLETION)
        metrics = (await http.get("/metrics")).text
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        after = (await http.get("/metrics")).text
    assert refused.status_code == 429
    assert "specdec_openai_requests_in_flight 1.0" in metrics
    assert 'specdec_openai_requests_total{path="/v1/completions",status="429"} 1.0' in metrics
    assert "specdec_openai_requests_in_flight 0.0" in after


async def test_disconnect_cancels_the_request() -> None:
    backend = FakeBackend(pieces("a", "b"), held=1)
    served = endpoint(backend)
    body = json.dumps({**COMPLETION, "stream": True}).encode()
    inputs: list[Json] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Json] = []

    async def receive() -> Json:
        if inputs:
            return inputs.pop()
        await backend.waiting.wait()
        return {"type": "http.disconnect"}

    async def send(message: Json) -> None:
        sent.append(message)

    await served.application()(SCOPE, receive, send)  # type: ignore[arg-type]
    assert backend.cancelled.is_set()
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    count = served.metrics.registry.get_sample_value
    assert (
        count("specdec_openai_requests_total", {"path": "/v1/completions", "status": "499"}) == 1
    )


async def test_disconnect_before_the_end_of_the_body_frees_the_place() -> None:
    served = endpoint(FakeBackend(), Settings("llama", limits=Limits(in_flight=1)))
    sent: list[Json] = []

    async def receive() -> Json:
        return {"type": "http.disconnect"}

    async def send(message: Json) -> None:
        sent.append(message)

    for _ in range(2):
        await served.application()(SCOPE, receive, send)  # type: ignore[arg-type]
    assert [m["status"] for m in sent if m["type"] == "http.response.start"] == [499, 499]


async def test_answer_beyond_the_time_limit_is_cancelled() -> None:
    backend = FakeBackend(pieces("a"), held=0)
    served = endpoint(backend, Settings("llama", limits=Limits(seconds=0.05)))
    response = await post(served, "completions", COMPLETION)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
    assert backend.cancelled.is_set()


async def test_body_above_the_limit_is_refused() -> None:
    served = endpoint(FakeBackend(), Settings("llama", limits=Limits(body_bytes=100)))
    response = await post(served, "completions", {**COMPLETION, "prompt": "x" * 100})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


async def test_template_refuses_roles_out_of_order() -> None:
    body = {"model": "llama", "messages": [{"role": "assistant", "content": "hi"}]}
    response = await post(endpoint(FakeBackend()), "chat/completions", body)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == (
        "the chat template refuses the messages: roles must alternate"
    )
