"""The OpenAI endpoint of real pods: requests to the Service, and the load that routers read."""

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import openai
import pytest
import yaml

from cluster.processes import DEADLINE_SECONDS
from controlplane import definitions, picker
from demo.story import SAMPLES
from e2e.polling import listens
from e2e.world import NAMESPACE, World, answers, merged
from specdec.client import Client, Request

GATEWAYS = SAMPLES.parent / "gateways"
# The picker selects at random when it has no reason to prefer a pod, so one pick proves nothing.
PICKS = 20
# A pod runs 32 requests at a time, twice the sample's maxBatchSize; further requests wait.
STREAMS = 40
NAME, SERVED, PORT = "reference-openai", "tiny", 9000
QUESTION: list[Any] = [{"role": "user", "content": "def read_lines(path):"}]
PROMPT = "def read_lines(path):\n"
LENGTH = 24
Object = dict[str, Any]


def sample(**spec: Any) -> Object:
    """Return the sample without verification, whose requests would disturb the counts."""
    body: Object = yaml.safe_load((SAMPLES / f"{NAME}.yaml").read_text("utf-8"))
    body["spec"] = merged(body["spec"], {"verification": {"mode": "Disabled"}, **spec})
    return body


@pytest.fixture(scope="module")
def service(world: World) -> Iterator[str]:
    """Apply the sample for all tests of this file, and yield its name."""
    yield world.apply(sample(), keep=True)
    world.kubectl("delete", "specm", NAME)


@pytest.fixture
def client(world: World, service: str) -> Iterator[openai.OpenAI]:
    """Wait until the sample is served, and yield a client of its Service."""
    ready = world.ready(service)
    (target,) = ready["status"]["endpoints"]
    assert target["openAI"] == f"http://{NAME}.{NAMESPACE}.svc:{PORT}/v1"
    host = world.host(NAME)
    url = f"{host}:{PORT}"
    world.wait(lambda: listens(url), lambda: f"{url} takes no connection")
    with openai.OpenAI(base_url=f"http://{url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


def test_service_answers_chat_and_finishes_a_stream_when_its_pod_ends(
    world: World, client: openai.OpenAI
) -> None:
    (pod,) = world.pods(NAME)
    assert [c["name"] for c in pod["spec"]["containers"]] == ["server", "openai"]
    assert all(status["ready"] for status in pod["status"]["containerStatuses"])
    assert [model.id for model in client.models.list()] == [SERVED]
    create: Any = client.chat.completions.create
    fields = {"model": SERVED, "messages": QUESTION, "max_completion_tokens": LENGTH}
    answer = create(**fields)
    text = answer.choices[0].message.content
    with Client(world.address(NAME), timeout=DEADLINE_SECONDS) as direct:
        request = Request(PROMPT, max_tokens=LENGTH, draft_tokens=0, stream=False)
        assert text == direct.ask(request).text
    assert answer.usage.completion_tokens_details.accepted_prediction_tokens > 0
    extra = {"include_metrics": True}
    chunks = list(
        create(**fields, stream=True, stream_options={"include_usage": True}, extra_body=extra)
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert chunks[-1].metrics["speculative_decoding"]["num_draft_tokens"] > 0
    with pytest.raises(openai.NotFoundError, match=f"set it to {SERVED}"):
        create(**{**fields, "model": "other"})
    _end_pod_during_streams(world, client, pod["metadata"]["name"])


def _end_pod_during_streams(world: World, client: openai.OpenAI, pod: str) -> None:
    """Delete the pod while a client streams answers, and check that each stream finishes."""
    outcomes: list[str] = []
    started, deleted = threading.Event(), threading.Event()

    def streaming() -> None:
        # The client requests the last answer after the deletion of the pod.
        while True:
            last = deleted.is_set()
            stream = client.completions.create(
                model=SERVED, prompt=PROMPT, max_tokens=200, stream=True
            )
            outcome = "no piece"
            try:
                for chunk in stream:
                    started.set()
                    outcome = str(chunk.choices[0].finish_reason)
            except openai.OpenAIError as error:
                outcome = repr(error)
            outcomes.append(outcome)
            if last:
                return

    thread = threading.Thread(target=streaming)
    thread.start()
    assert started.wait(DEADLINE_SECONDS)
    world.kubectl("delete", "pod", pod, "--wait=false")
    deleted.set()
    thread.join(DEADLINE_SECONDS)
    assert set(outcomes) <= {"length", "stop"}, outcomes


def test_picker_leads_requests_away_from_the_pod_that_decodes_long_streams(
    world: World, service: str, tmp_path: Path
) -> None:
    world.patch(service, {"serving": {"replicas": 2}})
    world.wait(
        lambda: len(answering(world, service)) == 2,
        lambda: f"{service} does not come to two pods that answer",
    )
    first, second = answering(world, service)
    pool = next(yaml.safe_load_all((GATEWAYS / "inferencepool.yaml").read_text("utf-8")))
    pool["metadata"]["name"] = service
    pool["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] = service
    assert pool["spec"]["targetPorts"] == [{"number": PORT}]
    config = GATEWAYS / "endpoint-picker.yaml"
    with definitions.installed(world.node, picker.pool_definitions()):
        world.kubectl("apply", "-f", "-", given=json.dumps(pool))
        log, place = tmp_path / "log", NAMESPACE
        with picker.running(world.node, service, config, log, place) as running:
            # Each pod is busy once, so a fixed preference of the picker cannot pass both checks.
            for busy, idle in ((first, second), (second, first)):
                with streaming(busy):
                    loaded(world, busy)
                    picked = picks(world, running, idle)
                assert picked == {idle}
                with openai.OpenAI(base_url=f"http://{idle}/v1", api_key="none") as at:
                    answer = at.completions.create(model=SERVED, prompt=PROMPT, max_tokens=4)
                assert answer.choices[0].text


def answering(world: World, name: str) -> list[str]:
    """Return `address:port` of the endpoint of each ready pod."""
    return sorted(f"{pod['status']['podIP']}:{PORT}" for pod in world.pods(name) if answers(pod))


def picks(world: World, running: picker.Picker, expected: str) -> set[str]:
    """Wait until the picker selects only the expected pod, and return what it selected."""
    picked: set[str] = set()

    def settled() -> bool:
        picked.clear()
        # On a busy machine probes may fail; the picker then has no ready pod for a moment.
        with suppress(grpc.RpcError, LookupError):
            picked.update([running.pick() for _ in range(PICKS)])
        return picked == {expected}

    world.wait(settled, lambda: f"{expected} is not picked alone: {picked}")
    return picked


def loaded(world: World, address: str) -> None:
    """Wait until the gauges of a pod show both running and waiting requests."""
    world.wait(
        lambda: all(gauges(address).get(name, 0) > 0 for name in ("running", "waiting")),
        lambda: f"{address} has the load {gauges(address)}",
    )


def gauges(address: str) -> dict[str, float]:
    """Return the reported numbers of waiting and running requests; empty without a report."""
    with urlopen(f"http://{address}/metrics", timeout=DEADLINE_SECONDS) as reply:
        page = reply.read().decode()
    lines = re.findall(r"^vllm:num_requests_(waiting|running)\{.*\} (\S+)$", page, re.MULTILINE)
    return {name: float(value) for name, value in lines}


@contextmanager
def streaming(address: str) -> Iterator[None]:
    """Keep more long streams open than a pod decodes at a time, until the block ends."""
    over, url = threading.Event(), f"http://{address}/v1"
    with (
        openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client,
        ThreadPoolExecutor(STREAMS) as pool,
    ):

        def ask() -> None:
            while not over.is_set():
                for _ in client.completions.create(
                    model=SERVED, prompt=PROMPT, max_tokens=200, stream=True
                ):
                    if over.is_set():
                        break

        running = [pool.submit(ask) for _ in range(STREAMS)]
        try:
            yield
        finally:
            over.set()
        for stream in running:
            stream.result(DEADLINE_SECONDS)


def test_missing_chat_template_is_reported_by_the_condition(world: World) -> None:
    body = sample(serving={"openAI": {"chatTemplate": {"name": "missing-chat"}}})
    body["metadata"]["name"] = "no-template"
    world.apply(body)
    message = world.until("no-template", "Available", "CrashLoop")["message"]
    assert "container openai of pod no-template" in message
    assert "chat_template.jinja cannot be read" in message
