"""A pod with vLLM in Triton: its probes, our endpoint in front of it, and an engine that dies."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from cluster.processes import until
from specdec.client import Client, Request, metrics
from specdec.servers.vllm.serving import TOKEN
from specdec.triton import vllm
from specdec.triton.layout import PLAIN
from specdec.triton.model_names import VLLM
from specdec.triton.probes import programs
from support.openai_endpoint import MODEL, OpenAIEndpoint
from support.shipped_pair import PAIR
from support.triton_server import Server
from support.vllm_generate import SMALL, TARGET
from support.vllm_tests import installed
from support.vllm_triton import serving
from triton.probed_pod import Pod

pytestmark = [pytest.mark.slow, pytest.mark.triton, pytest.mark.vllm(gibibytes=3)]
PROMPT = "def read_lines(path):\n"
LENGTH = 24
# The pod leaves its Service within this time: a period of the readiness probe, and a run of it.
LEAVES_SECONDS = 15.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    draft = {"method": "draft_model", "model": str(PAIR / "draft"), "num_speculative_tokens": 4}
    arguments = SMALL | TARGET | {"speculative_config": draft}
    files = vllm.files(vllm.VllmPlan(arguments=json.dumps(arguments)))
    with serving(installed(), files, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def pod(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Pod:
    grpc = int(server.url.rpartition(":")[2])
    made = programs(
        PLAIN,
        (VLLM,),
        TOKEN,
        attempt_seconds=30,
        patience_seconds=60,
        http_port=server.http_port,
        grpc_port=grpc,
        metrics_port=server.metrics_port,
    )
    return Pod(server, made, tmp_path_factory.mktemp("probes"))


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    options = ["--kind", "vllm", "--metrics-url", f"127.0.0.1:{server.metrics_port}"]
    with (
        OpenAIEndpoint(server.url, PAIR / "target", options) as running,
        openai.OpenAI(base_url=running.url, api_key="none", max_retries=0) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def expected(server: Server) -> str:
    with Client(server.url) as direct:
        answer = direct.ask(Request(PROMPT, VLLM, max_tokens=LENGTH, stream=False))
    assert answer.counts is not None
    assert 0 < answer.counts.accepted < answer.counts.drafted
    return answer.text


def test_probes_succeed(pod: Pod) -> None:
    assert pod.probe("startup") == ""
    assert pod.probe("readiness") == ""
    assert pod.probe("liveness") == ""


@pytest.mark.parametrize("stream", [False, True])
def test_endpoint_gives_the_models_text_and_counts(
    client: openai.OpenAI, expected: str, stream: bool
) -> None:
    create: Any = client.completions.create
    extra: dict[str, Any] = {"extra_body": {"include_metrics": True}}
    if stream:
        extra["stream_options"] = {"include_usage": True}
    answer = create(model=MODEL, prompt=PROMPT, max_tokens=LENGTH, stream=stream, **extra)
    parts = list(answer) if stream else [answer]
    choices = [part.choices[0] for part in parts if part.choices]
    assert "".join(choice.text for choice in choices) == expected
    assert choices[-1].finish_reason == "length"
    assert parts[-1].usage.completion_tokens == LENGTH
    counts = parts[-1].metrics["speculative_decoding"]
    assert 0 < counts["num_accepted_draft_tokens"] < counts["num_draft_tokens"]


@pytest.mark.parametrize("stream", [False, True])
def test_stop_string_is_cut(client: openai.OpenAI, expected: str, stream: bool) -> None:
    stop = expected[10:14]
    create: Any = client.completions.create
    answer = create(model=MODEL, prompt=PROMPT, max_tokens=LENGTH, stop=stop, stream=stream)
    choices = [part.choices[0] for part in (answer if stream else [answer])]
    assert "".join(choice.text for choice in choices) == expected[: expected.index(stop)]
    assert choices[-1].finish_reason == "stop"


def test_log_probabilities_are_those_of_the_text(client: openai.OpenAI, expected: str) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=LENGTH, logprobs=0
    ).choices[0]
    assert answer.logprobs is not None
    values = answer.logprobs.token_logprobs or []
    assert len(values) == LENGTH
    assert all(value <= 0 for value in values)


def test_field_that_the_model_does_not_read_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="no input num_draft_tokens; leave it out"):
        client.completions.create(model=MODEL, prompt=PROMPT, extra_body={"num_draft_tokens": 2})


def test_metrics_count_drafts(server: Server, expected: str) -> None:
    assert expected
    url = f"127.0.0.1:{server.metrics_port}"
    # The model copies the engine's counters twice a second.
    until(lambda: metrics.read(url).accepted > 0, lambda: "no accepted draft tokens")
    totals = metrics.read(url)
    assert totals.accepted < totals.drafted
    assert totals.rounds > 0


def test_dead_engine_fails_readiness_and_liveness(pod: Pod) -> None:
    """Last, because it ends the engine."""
    engines = [
        pid
        for pid in pod.server.processes()
        if b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert engines
    for pid in engines:
        os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    until(lambda: bool(pod.probe("readiness")), lambda: "still ready")
    assert time.monotonic() - began < LEAVES_SECONDS
    until(lambda: bool(pod.probe("liveness")), lambda: "still live")
