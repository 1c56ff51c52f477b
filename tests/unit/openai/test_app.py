"""The routes with a scripted server: models, readiness, bounds and disconnects."""

import asyncio
import gzip
import json
from dataclasses import replace

import pytest

from specdec.images.openai.limits import Limits
from specdec.images.openai.settings import EndpointSettings
from unit.openai.fake_backend import SERVED, FakeBackend, endpoint, pieces
from unit.openai.in_process import COMPLETION, Json, client, post

SCOPE = {
    "type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"",
    "headers": [], "asgi": {"version": "3.0"}, "http_version": "1.1",
}  # fmt: skip


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
    served = endpoint(backend, EndpointSettings("llama", limits=Limits(in_flight=1)))
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


@pytest.mark.parametrize(
    ("inputs", "headers", "scope"),
    [
        ({"lookup_scope"}, {"X-Lookup-Scope": "tenant-7"}, "tenant-7"),
        ({"lookup_scope"}, {"X-Lookup-Scope": ""}, None),
        ({"lookup_scope"}, {}, None),
        # A gateway may also set the header for services whose BLS has no lookup memory.
        (set(), {"X-Lookup-Scope": "tenant-7"}, None),
    ],
)
async def test_header_names_the_scope_of_lookups(
    inputs: set[str], headers: dict[str, str], scope: str | None
) -> None:
    declared = replace(SERVED.declared, inputs=SERVED.declared.inputs | inputs)
    declaration = replace(SERVED, declared=declared)
    backend = FakeBackend(pieces("a"), declaration=declaration)
    async with client(endpoint(backend)) as http:
        response = await http.post("/v1/completions", json=COMPLETION, headers=headers)
    assert response.status_code == 200
    assert [request.lookup_scope for request in backend.requests] == [scope]


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
    served = endpoint(FakeBackend(), EndpointSettings("llama", limits=Limits(in_flight=1)))
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
    served = endpoint(backend, EndpointSettings("llama", limits=Limits(seconds=0.05)))
    response = await post(served, "completions", COMPLETION)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
    assert backend.cancelled.is_set()


async def test_body_above_the_limit_is_refused() -> None:
    served = endpoint(FakeBackend(), EndpointSettings("llama", limits=Limits(body_bytes=100)))
    response = await post(served, "completions", {**COMPLETION, "prompt": "x" * 100})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


async def test_template_refuses_roles_out_of_order() -> None:
    body = {"model": "llama", "messages": [{"role": "assistant", "content": "hi"}]}
    response = await post(endpoint(FakeBackend()), "chat/completions", body)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == (
        "the chat template refuses the messages: roles must alternate"
    )


async def test_models_have_their_longest_sequence_as_soon_as_it_is_known() -> None:
    async with client(endpoint(FakeBackend())) as http:
        assert (await http.get("/v1/models")).json()["data"][0]["max_model_len"] == 512
    unknown = FakeBackend(declaration=replace(SERVED, max_seq_len=0))
    async with client(endpoint(unknown)) as http:
        assert "max_model_len" not in (await http.get("/v1/models/llama")).json()


async def test_answers_have_the_id_of_their_request() -> None:
    async with client(endpoint(FakeBackend(pieces("a")))) as http:
        own = await http.post("/v1/completions", json=COMPLETION, headers={"X-Request-Id": "r-1"})
        ids = [(await http.get("/v1/nothing")).headers["x-request-id"] for _ in range(2)]
    assert own.headers["x-request-id"] == "r-1"
    assert len(set(ids)) == 2


async def test_compressed_body_is_no_media_type_of_this_server() -> None:
    async with client(endpoint(FakeBackend())) as http:
        body, headers = (
            gzip.compress(json.dumps(COMPLETION).encode()),
            {"content-encoding": "gzip"},
        )
        refused = await http.post("/v1/completions", content=body, headers=headers)
    assert refused.status_code == 415
    assert "content-encoding gzip; send it without one" in refused.json()["error"]["message"]


async def test_slash_behind_a_path_does_not_redirect() -> None:
    async with client(endpoint(FakeBackend())) as http:
        response = await http.post("/v1/completions/", json=COMPLETION)
    assert response.status_code == 404
    assert "use /v1/completions" in response.json()["error"]["message"]
