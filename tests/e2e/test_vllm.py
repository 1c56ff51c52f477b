"""Backend VLLM with a real vLLM on the node: Triton with its model, and vLLM's own server.

Nothing is simulated except the GPUs, which vLLM for CPUs does not use. The expected answers are
those of the Reference engine.
"""

import json
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from cluster.processes import DEADLINE_SECONDS
from demo.story import prompts
from e2e import vllm
from e2e.world import Object, World, answers
from specdec.client import Client, ClientError, Request
from specdec.triton.model_names import VLLM
from support import foreign_clients, vllm_node
from support.shipped_pair import PAIR
from support.vllm_tests import alone, installed

pytestmark = [pytest.mark.slow, pytest.mark.vllm(gibibytes=5)]
PLAIN = "vllm-plain"
TOKENS = 32
VERIFIED: Object = {"mode": "Gate", "maxPrompts": 3, "maxTokens": 24}
BENCHMARK: Object = {
    "mode": "OnReady",
    "baseline": {"modelRef": {"name": PLAIN}},
    "concurrency": [1],
    "requests": 4,
    "outputTokens": 24,
}


@pytest.fixture(scope="module")
def packages(world: World, gpus: None) -> Iterator[None]:
    """Give the node the image and the packages; no other test has an engine at that time."""
    vllm_node.load(world.node)
    for body in vllm_node.volume(installed()):
        world.kubectl("apply", "-f", "-", given=json.dumps(body))
    with alone():
        yield


@pytest.fixture(scope="module")
def plain(world: World, packages: None) -> Iterator[str]:
    """Yield a served resource whose target decodes alone."""
    yield world.apply(vllm.resource(PLAIN), keep=True)
    world.kubectl("delete", "specm", PLAIN)


@pytest.fixture
def expected(world: World, served: str) -> dict[str, str]:
    """Return the answers of the Reference engine without drafts."""
    return {
        prompt: world.text(served, prompt, max_tokens=TOKENS, draft_tokens=0)
        for prompt in prompts(4)
    }


def test_plain_target_answers_as_the_reference_engine(
    world: World, plain: str, expected: dict[str, str]
) -> None:
    world.ready(plain)
    for prompt, text in expected.items():
        assert world.text(plain, prompt, model=VLLM, max_tokens=TOKENS) == text


@pytest.mark.parametrize(
    "speculation", [vllm.DRAFT_TARGET, vllm.N_GRAM], ids=lambda block: str(block["method"])
)
def test_method_answers_as_the_reference_engine_and_is_measured(
    world: World, plain: str, expected: dict[str, str], speculation: Object
) -> None:
    name = world.apply(
        vllm.resource("vllm", speculation, verification=VERIFIED, benchmark=BENCHMARK)
    )
    world.ready(name)
    drafted = accepted = 0
    chunks: dict[bool, list[int]] = {False: [], True: []}
    with Client(world.address(name), timeout=DEADLINE_SECONDS) as client:
        for prompt, text in expected.items():
            for stream, counted in chunks.items():
                request = Request(prompt, VLLM, max_tokens=TOKENS, stream=stream)
                answer = client.ask(request)
                assert answer.text == text
                counted.append(answer.chunks)
                assert answer.counts is not None
                drafted += answer.counts.drafted
                accepted += answer.counts.accepted
    # An answer may be empty.
    assert max(chunks[False]) == 1 < max(chunks[True])
    assert 0 < accepted <= drafted
    world.until(name, "SpeculationActive", "DraftTokensObserved")
    result = world.get(name)["status"]["speculation"]
    assert result["prompts"] == 3
    assert 0 < result["acceptedTokens"] <= result["draftedTokens"]
    world.until(name, "BenchmarkCompleted", "Completed")
    (level,) = world.get(name)["status"]["benchmark"]["levels"]
    assert level["speedupPercent"] > 0
    assert [level[arm]["requests"] for arm in ("baseline", "speculative")] == [4, 4]
    assert [level[arm]["errors"] for arm in ("baseline", "speculative")] == [0, 0]


def test_rollout_loses_no_request(world: World, packages: None, expected: dict[str, str]) -> None:
    name = world.apply(vllm.resource("vllm", vllm.DRAFT_TARGET))
    first = world.ready(name)
    over, failures, count = threading.Event(), list[str](), 0
    (prompt, text), *_ = expected.items()

    def ask() -> None:
        nonlocal count
        with Client(world.address(name), timeout=DEADLINE_SECONDS) as client:
            while not over.is_set():
                try:
                    answer = client.ask(Request(prompt, VLLM, max_tokens=TOKENS)).text
                except ClientError as error:
                    failures.append(str(error))
                    continue
                count += answer == text
                if answer != text:
                    failures.append(answer)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        world.patch(name, {"speculation": {"maxDraftTokens": 2}})
        second = world.ready(name)
        world.left(name, 1)
        goal = count + 3
        world.wait(lambda: count >= goal, lambda: f"no more answers: {failures}")
    finally:
        over.set()
        thread.join(DEADLINE_SECONDS)
    assert failures == []
    hashes = [body["status"]["repository"]["hash"] for body in (first, second)]
    assert hashes[0] != hashes[1]


def test_pod_whose_engine_is_killed_leaves_the_service_and_returns(
    world: World, packages: None, expected: dict[str, str]
) -> None:
    name = world.apply(vllm.resource("vllm", vllm.DRAFT_TARGET))
    world.ready(name)
    assert_leaves_and_returns(world, name)
    prompt, text = next(iter(expected.items()))
    assert world.text(name, prompt, model=VLLM, max_tokens=TOKENS) == text


def assert_leaves_and_returns(world: World, name: str) -> None:
    """Kill the engine of a resource's only pod; the pod leaves its Service, and returns."""
    (pod,) = world.pods(name)
    vllm.kill_engine(pod)
    world.wait(lambda: addresses(world, name) == 0, lambda: "the pod stays in its Service")
    world.wait(lambda: addresses(world, name) == 1, lambda: "the pod does not return")
    (again,) = world.pods(name)
    assert again["metadata"]["uid"] == pod["metadata"]["uid"]
    assert answers(again)
    world.ready(name)


def addresses(world: World, name: str) -> int:
    """Return the number of pods that the Service of a resource sends requests to."""
    slices = world.kubectl.get("endpointslices", "-l", f"kubernetes.io/service-name={name}")
    return sum(
        endpoint["conditions"]["ready"]
        for item in (slices or {"items": []})["items"]
        for endpoint in item.get("endpoints") or ()
    )


@pytest.fixture(scope="module")
def own_server(world: World, packages: None) -> Iterator[tuple[str, str]]:
    """Yield the name of a resource with vLLM's own server, and its OpenAI URL at the Service."""
    front: Object = {"runtime": {"frontend": "VllmServe"}, "verification": VERIFIED}
    name = world.apply(vllm.resource("vllm-serve", vllm.DRAFT_TARGET, **front), keep=True)
    (endpoint,) = world.ready(name)["status"]["endpoints"]
    url = endpoint["openAI"].replace(f"{name}.default.svc", world.host(name))
    yield name, url
    world.kubectl("delete", "specm", name)


def test_own_server_answers_as_the_reference_engine(
    world: World, own_server: tuple[str, str], expected: dict[str, str]
) -> None:
    name, url = own_server
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        create: Any = client.completions.create
        fields = {"model": name, "max_tokens": TOKENS, "temperature": 0}
        longest = 0
        for prompt, text in expected.items():
            assert create(prompt=prompt, **fields).choices[0].text == text
            chunks = list(create(prompt=prompt, stream=True, **fields))
            assert "".join(chunk.choices[0].text for chunk in chunks) == text
            longest = max(longest, sum(bool(chunk.choices[0].text) for chunk in chunks))
        assert longest > 1
    world.until(name, "SpeculationActive", "DraftTokensObserved")
    result = world.get(name)["status"]["speculation"]
    assert 0 < result["acceptedTokens"] <= result["draftedTokens"]


@pytest.mark.nightly
def test_langchain_and_aiperf_use_the_service(own_server: tuple[str, str]) -> None:
    name, url = own_server
    # The pair has no template for chats.
    asked = ("def read_lines(path):", str(TOKENS), "text")
    got = foreign_clients.program("langchain", url, name, *asked)
    assert got["text"] == got["text stream"] != ""
    measured = foreign_clients.program("aiperf", url, name, str(PAIR / "target"), str(TOKENS))
    assert (measured["requests"], measured["errors"]) == (8, [])
    assert measured["tokens"] == 8 * TOKENS


def test_own_server_whose_engine_is_killed_leaves_the_service(
    world: World, own_server: tuple[str, str]
) -> None:
    assert_leaves_and_returns(world, own_server[0])
