"""A pod with vLLM in Triton: its probes, our endpoint in front of it, and an engine that dies."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from cluster.processes import until
from specdec.client import Client, Request, metrics
from specdec.servers.vllm.serving import TOKEN
from specdec.triton.layout import PLAIN
from specdec.triton.model_names import VLLM
from specdec.triton.probes import programs
from support.openai_cases import LENGTH, PROMPT, Answer, EndpointCases, completion, template
from support.openai_endpoint import MODEL, OpenAIEndpoint
from support.shipped_pair import PAIR
from support.triton_server import Server
from support.vllm_tests import installed
from support.vllm_triton import DRAFTS, engines, repository, serving
from triton.probed_pod import Pod

pytestmark = [pytest.mark.slow, pytest.mark.triton, pytest.mark.vllm(gibibytes=3)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with serving(installed(), repository(DRAFTS), folder) as running:
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
def options(server: Server, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the options of an endpoint in front of the model."""
    file = template(tmp_path_factory.mktemp("template"))
    metrics_url = f"127.0.0.1:{server.metrics_port}"
    return ["--kind", "vllm", "--metrics-url", metrics_url, "--chat-template", str(file)]


@pytest.fixture(scope="module")
def endpoint(server: Server, options: list[str]) -> Iterator[OpenAIEndpoint]:
    with OpenAIEndpoint(server.url, PAIR / "target", options) as running:
        yield running


@pytest.fixture
def another(server: Server, options: list[str]) -> Iterator[OpenAIEndpoint]:
    with OpenAIEndpoint(server.url, PAIR / "target", options) as running:
        yield running


@pytest.fixture(scope="module")
def client(endpoint: OpenAIEndpoint) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=endpoint.url, api_key="none", max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def model() -> str:
    return VLLM


@pytest.fixture(scope="module")
def answer(server: Server) -> Answer:
    def expected(prompt: str) -> str:
        with Client(server.url) as direct:
            return direct.ask(Request(prompt, VLLM, max_tokens=LENGTH, stream=False)).text

    return expected


def test_probes_succeed(pod: Pod) -> None:
    assert pod.probe("startup") == ""
    assert pod.probe("readiness") == ""
    assert pod.probe("liveness") == ""


class TestEndpoint(EndpointCases):
    """The cases of every model."""


@pytest.mark.parametrize("stream", [False, True])
def test_answers_have_counts_of_drafts(client: openai.OpenAI, stream: bool) -> None:
    answer = completion(client, stream=stream, extra_body={"include_metrics": True})
    last = answer[-1] if stream else answer
    counts = last.metrics["speculative_decoding"]
    assert 0 < counts["num_accepted_draft_tokens"] < counts["num_draft_tokens"]


def test_client_that_leaves_ends_its_request(
    client: openai.OpenAI, endpoint: OpenAIEndpoint
) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "max_tokens": 200}
    with client.completions.create(**asked, stream=True) as stream:
        next(iter(stream))
    until(lambda: 'status="499"} 1.0' in endpoint.get("/metrics"), lambda: "it is not counted")
    idle = "specdec_openai_requests_in_flight 0.0"
    until(lambda: idle in endpoint.get("/metrics"), lambda: "the request goes on")


def test_field_that_the_model_does_not_read_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="no input num_draft_tokens; leave it out"):
        client.completions.create(model=MODEL, prompt=PROMPT, extra_body={"num_draft_tokens": 2})


def test_metrics_count_drafts(server: Server, answer: Answer) -> None:
    assert answer(PROMPT)
    url = f"127.0.0.1:{server.metrics_port}"
    # The model copies the engine's counters twice a second.
    until(lambda: metrics.read(url).accepted > 0, lambda: "no accepted draft tokens")
    totals = metrics.read(url)
    assert totals.accepted < totals.drafted
    assert totals.rounds > 0


def test_dead_engine_fails_readiness_and_liveness(pod: Pod) -> None:
    """Last, because it ends the engine."""
    (engine,) = engines(pod.server)
    os.kill(engine, signal.SIGKILL)
    until(lambda: bool(pod.probe("readiness")), lambda: "still ready")
    until(lambda: bool(pod.probe("liveness")), lambda: "still live")
