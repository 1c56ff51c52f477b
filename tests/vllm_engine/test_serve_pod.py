"""A pod with vLLM's own server: its probes, the proxy in front of it, and an engine that dies."""

import asyncio
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from cluster.processes import DEADLINE_SECONDS, until
from specdec import servers
from specdec.client import Entry, metrics
from specdec.client.connection import Connection
from specdec.jobs import verify_counts
from support.vllm_serve_pod import MODEL, Pod
from support.vllm_tests import installed

pytestmark = [pytest.mark.slow, pytest.mark.vllm(gibibytes=3)]
KIND = servers.kind("vllm_serve")
PROMPT = "def read_lines(path):"
QUESTION: list[Any] = [{"role": "user", "content": PROMPT}]
LENGTH = 24
# Paths that vLLM's server has, and what each of them answers within the pod.
CLOSED = ("/tokenize", "/detokenize", "/v1/messages/count_tokens", "/invocations")
Json = dict[str, Any]


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    with Pod(installed(), tmp_path_factory.mktemp("pod")) as running:
        yield running


@pytest.fixture(scope="module")
def client(pod: Pod) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{pod.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def expected(pod: Pod) -> str:
    """Return the text that the server itself gives, without the proxy."""
    body = {"model": MODEL, "prompt": f"{PROMPT}\n", "max_tokens": LENGTH, "temperature": 0}
    status, answer = post(pod.server.url, "/v1/completions", body)
    assert status == 200
    text: str = answer["choices"][0]["text"]
    assert text
    return text


def post(url: str, path: str, body: Json) -> tuple[int, Json]:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_probes_succeed(pod: Pod) -> None:
    assert pod.probe("startup") == ""
    assert pod.probe("readiness") == ""
    assert pod.probe("liveness") == ""


def test_idle_server_is_asked_for_a_token(pod: Pod) -> None:
    assert pod.probe("startup") == ""
    before = metrics.read(pod.metrics).generated
    pod.age(20)
    assert pod.probe("readiness") == ""
    assert metrics.read(pod.metrics).generated == before + 1


@pytest.mark.parametrize("stream", [False, True])
def test_completion_is_the_servers_text(
    client: openai.OpenAI, expected: str, stream: bool
) -> None:
    create: Any = client.completions.create
    extra: Json = {"stream_options": {"include_usage": True}} if stream else {}
    answer = create(
        model=MODEL,
        prompt=f"{PROMPT}\n",
        max_tokens=LENGTH,
        temperature=0,
        stream=stream,
        **extra,
    )
    parts = list(answer) if stream else [answer]
    choices = [part.choices[0] for part in parts if part.choices]
    assert "".join(choice.text for choice in choices) == expected
    assert choices[-1].finish_reason == "length"
    assert parts[-1].usage.completion_tokens == LENGTH
    assert {part.model for part in parts} == {MODEL}


@pytest.mark.parametrize("stream", [False, True])
def test_chat_is_the_servers_text(client: openai.OpenAI, expected: str, stream: bool) -> None:
    create: Any = client.chat.completions.create
    answer = create(
        model=MODEL,
        messages=QUESTION,
        max_completion_tokens=LENGTH,
        temperature=0,
        stream=stream,
    )
    if stream:
        text = "".join(part.choices[0].delta.content or "" for part in answer if part.choices)
    else:
        text = answer.choices[0].message.content
    # A parser of vLLM may remove spaces around a whole text, but none within it.
    assert text == expected


def test_responses_and_messages_are_the_servers_text(
    pod: Pod, client: openai.OpenAI, expected: str
) -> None:
    answer = client.responses.create(
        model=MODEL, input=PROMPT, max_output_tokens=LENGTH, temperature=0
    )
    assert answer.output_text == expected
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": LENGTH, "temperature": 0}
    status, message = post(pod.url, "/v1/messages", body)
    assert (status, message["model"]) == (200, MODEL)
    assert "".join(block["text"] for block in message["content"]) == expected


def test_message_that_is_at_fault_is_refused(pod: Pod) -> None:
    """The server itself answers it with status 500."""
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 4000}
    assert post(pod.server.url, "/v1/messages", body)[0] == 500
    status, answer = post(pod.url, "/v1/messages", body)
    assert (status, answer["type"]) == (400, "error")
    assert "max_model_len" in answer["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_each_of_several_answers_is_counted(pod: Pod, client: openai.OpenAI, stream: bool) -> None:
    before = metrics.read(pod.metrics)
    create: Any = client.completions.create
    extra: Json = {"stream_options": {"include_usage": True}} if stream else {}
    answer = create(
        model=MODEL,
        prompt=f"{PROMPT}\n",
        max_tokens=LENGTH,
        n=3,
        stream=stream,
        extra_body={"ignore_eos": True},
        **extra,
    )
    parts = list(answer) if stream else [answer]
    assert {choice.index for part in parts for choice in part.choices} == {0, 1, 2}
    assert parts[-1].usage.completion_tokens == 3 * LENGTH
    until(
        lambda: metrics.read(pod.metrics).generated == before.generated + 3 * LENGTH,
        lambda: "the tokens are not counted",
    )
    assert metrics.read(pod.metrics).drafted > before.drafted


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [(model.id, model.owned_by) for model in client.models.list()] == [(MODEL, "vllm")]


def test_verification_counts_draft_tokens(pod: Pod) -> None:
    entries = [Entry(f"{PROMPT}\n", LENGTH), Entry("class Node:\n", LENGTH)]
    connection = Connection(pod.url.removeprefix("http://"), path=KIND.requests.path)
    result = asyncio.run(verify_counts.counted(KIND, connection, pod.metrics, entries, LENGTH))
    assert (result["prompts"], result["failed"], result["active"]) == (2, 0, True)
    assert 0 < result["acceptedTokens"] < result["draftedTokens"]


@pytest.mark.parametrize("path", CLOSED)
def test_no_client_reaches_other_operations(pod: Pod, path: str) -> None:
    name = path[1:]
    for asked in (path, f"/v1/..{path}", f"/v1/%2e%2e{path}", f"{path}%0a", f"//{name}"):
        assert pod.status(asked, "POST") == 404, asked
    assert pod.status(path, "POST", f"http://{pod.metrics}") == 404
    # Within the pod, the server itself knows the path.
    assert pod.status(path, "POST", pod.server.url) not in (404, 405)


def test_ports_of_clients_and_of_metrics_are_apart(pod: Pod) -> None:
    assert pod.status("/metrics") == 404
    assert pod.status("/v1/models", url=f"http://{pod.metrics}") == 404
    assert pod.status("/metrics", url=f"http://{pod.metrics}") == 200


@pytest.mark.parametrize(
    ("fields", "status", "sentence"),
    [
        ({"model": "other"}, 404, "model is other, which is not served here; set it to tiny"),
        ({"prompt": ["a"] * 100}, 400, "prompt"),
        ({"n": 10**9}, 400, "n is 1000000000"),
        ({"logprobs": 10**6}, 400, "logprobs is 1000000"),
        ({"temperature": -1}, 400, "temperature is -1"),
        ({"structured_outputs": {"regex": "(a*)*b"}}, 400, "structured_outputs.regex"),
        ({"prompt_embeds": "AAAA"}, 400, "prompt_embeds is no parameter"),
        ({"kv_transfer_params": {"a": 1}}, 400, "kv_transfer_params is no parameter"),
        ({"lora_path": "/etc"}, 400, "lora_path is no parameter"),
        ({"prompt": "a " * 4000}, 400, "maximum"),
        ({"allowed_token_ids": [10**6]}, 400, "allowed_token_ids"),
        ({"stop_token_ids": ["x"]}, 400, "stop_token_ids"),
    ],
)
def test_hostile_body_is_refused_and_the_server_lives(
    pod: Pod, fields: Json, status: int, sentence: str
) -> None:
    body = {"model": MODEL, "prompt": "a", "max_tokens": 1, **fields}
    got, answer = post(pod.url, "/v1/completions", body)
    assert (got, sentence in answer["error"]["message"]) == (status, True), answer
    assert pod.probe("liveness") == ""


def test_client_that_leaves_ends_its_request(pod: Pod, client: openai.OpenAI) -> None:
    """The server has no counter of such requests, but it does not generate all their tokens."""
    fields: Any = {"model": MODEL, "prompt": PROMPT, "max_tokens": 200}
    running = 'vllm:num_requests_running{engine="0",model_name="tiny"}'

    def ended_early() -> bool:
        before = metrics.read(pod.metrics).generated
        stream = client.completions.create(**fields, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        until(lambda: f"{running} 0.0" in page(pod), lambda: "the request goes on")
        return metrics.read(pod.metrics).generated - before < 200

    # A fast engine may be at the last token before the server notices.
    until(ended_early, lambda: "every request generates all its tokens")


def page(pod: Pod) -> str:
    with urllib.request.urlopen(f"http://{pod.metrics}/metrics") as reply:
        text: str = reply.read().decode()
        return text


def test_page_has_each_gauge_once(pod: Pod) -> None:
    for name in KIND.counters.gauges:
        samples = [line for line in page(pod).splitlines() if line.startswith(f"{name}{{")]
        assert len(samples) == 1, samples


def test_dead_engine_fails_readiness_and_liveness(pod: Pod) -> None:
    """Last, because it ends the engine."""
    assert pod.probe("readiness") == ""
    os.kill(pod.server.engine(), signal.SIGKILL)
    until(lambda: bool(pod.probe("readiness")), lambda: "still ready")
    until(lambda: pod.status("/health/ready") == 503, lambda: "the proxy is still ready")
    until(lambda: bool(pod.probe("liveness")), lambda: "still live")
