"""The samples of backend PyTorch as the operator runs them, with a simulation of the LLM API.

Only the image is a simulation (`llm_api.Dockerfile`). Everything else equals a run with GPUs: the
fetch Jobs, the model repository, the command of the server, its probes, its GPU requests, the
OpenAI endpoint and the verification Job.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import yaml

from cluster.processes import DEADLINE_SECONDS
from demo.story import SAMPLES
from e2e.polling import listens
from e2e.world import SHARED, Object, World, merged, source
from specdec.client import Client, Request

NAMES = ("pytorch-draft-target", "pytorch-ngram", "pytorch-suffix-automaton")
# GPUs of each sample, as its tensor parallelism and its instances require.
GPUS = dict(zip(NAMES, ("2", "1", "2"), strict=True))
# The draft of the test has two attention heads; the sample's has enough for four GPUs.
SPLIT: Object = {"parallelism": {"tensor": 2}}
WITH_ENDPOINT, PORT = "pytorch-ngram", 9000
MODEL, PROMPT, LENGTH = "tensorrt_llm", "def read_lines(path):\n", 40
# The baseline is the resource of the fixture `served`.
BENCHMARK: Object = {
    "mode": "OnReady",
    "baseline": {"modelRef": {"name": "served"}},
    "concurrency": [1],
    "requests": 4,
    "outputTokens": 12,
}
IMAGE = "localhost/specdec/llm-api-simulation:dev"


def sample(name: str) -> Object:
    """Return the sample with the changes that a node without GPUs and network needs."""
    body: Object = yaml.safe_load((SAMPLES / f"{name}.yaml").read_text("utf-8"))
    spec = body["spec"]
    checkpoints = [("target", spec["target"])]
    if draft := spec["speculation"].get("draftTarget", {}).get("draft"):
        checkpoints.append(("draft", draft))
        spec["target"] |= SPLIT
    for role, model in checkpoints:
        model["source"] = source(role)
    spec["storage"] = {"existingClaim": SHARED}
    small = {"resources": {"requests": {"cpu": "100m", "memory": "512Mi"}}}
    changes: Object = {
        "runtime": {"image": IMAGE},
        "serving": {**small, "openAI": {}} if name == WITH_ENDPOINT else small,
        "verification": {"maxPrompts": 3, "maxTokens": 24},
    }
    if name == WITH_ENDPOINT:
        changes["benchmark"] = BENCHMARK
    body["spec"] = merged(spec, changes)
    return body


@pytest.fixture(scope="module")
def services(world: World, gpus: None) -> None:
    """Apply all samples at once: together they use five of the node's GPUs."""
    world.node.load("llm-api", IMAGE, "tests/e2e/llm_api.Dockerfile")
    for name in NAMES:
        world.apply(sample(name), keep=True)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest, world: World, services: None) -> Iterator[str]:
    """Yield a served sample; delete it after its test, because its probes take processor time."""
    try:
        world.ready(request.param)
        yield str(request.param)
    finally:
        world.kubectl("delete", "specm", request.param)


def specdec(*arguments: str) -> Object:
    """Run a command, check that it succeeds, and return the last JSON object of its output."""
    argv = [sys.executable, "-m", "specdec.tools.cli", *arguments, "--json"]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    result: Object = json.loads(done.stdout.splitlines()[-1])
    return result


def test_sample_answers_as_the_target_alone_and_is_measured(
    world: World, name: str, served: str
) -> None:
    expected = world.text(served, PROMPT, max_tokens=LENGTH, draft_tokens=0)
    (pod,) = world.pods(name)
    (server,) = (c for c in pod["spec"]["containers"] if c["name"] == "server")
    assert server["image"] == IMAGE
    assert server["resources"]["limits"]["nvidia.com/gpu"] == GPUS[name]
    for stream in (False, True):
        with Client(world.address(name), timeout=DEADLINE_SECONDS) as client:
            answer = client.ask(Request(PROMPT, MODEL, max_tokens=LENGTH, stream=stream))
        assert answer.text == expected
        assert (answer.chunks > 1) == stream
        assert answer.counts is not None
        assert answer.counts.drafted >= answer.counts.accepted > 0
    if name == WITH_ENDPOINT:
        assert_endpoint_answers(world, name, expected)
        assert_compared_with_another_resource(world, name)
    assert_verified_and_measured(world, name, served)


def assert_endpoint_answers(world: World, name: str, expected: str) -> None:
    """Check the endpoint's text with and without streaming, and its counts of draft tokens."""
    url = f"{world.host(name)}:{PORT}"
    world.wait(lambda: listens(url), lambda: f"{url} takes no connection")
    fields = {"model": name, "prompt": PROMPT, "max_tokens": LENGTH}
    with openai.OpenAI(base_url=f"http://{url}/v1", api_key="none", max_retries=0) as client:
        create: Any = client.completions.create
        assert create(**fields).choices[0].text == expected
        chunks = list(create(**fields, stream=True, extra_body={"include_metrics": True}))
    pieces = [chunk.choices[0].text for chunk in chunks]
    assert "".join(pieces) == expected
    assert sum(map(bool, pieces)) > 1
    counts = chunks[-1].metrics["speculative_decoding"]
    assert 0 < counts["num_accepted_draft_tokens"] <= counts["num_draft_tokens"]


def assert_compared_with_another_resource(world: World, name: str) -> None:
    """Check the result of the operator's benchmark Job."""
    message = world.until(name, "BenchmarkCompleted", "Completed")["message"]
    assert message.startswith("speed relative to served, by concurrent clients: ")
    (level,) = world.get(name)["status"]["benchmark"]["levels"]
    assert level["speedupPercent"] > 0
    assert (level["baseline"]["requests"], level["speculative"]["errors"]) == (4, 0)


def assert_verified_and_measured(world: World, name: str, served: str) -> None:
    """Check the verification Job, and `verify` and `bench` against another service as baseline."""
    world.until(name, "SpeculationActive", "DraftTokensObserved")
    result = world.get(name)["status"]["speculation"]
    assert (result["prompts"], "matched" in result) == (3, False)
    assert 0 < result["acceptedTokens"] <= result["draftedTokens"]

    plain = ("--baseline-url", world.address(served), "--baseline-model", "ensemble")
    both = ("--url", world.address(name), "--model", MODEL, *plain)
    for service in (name, served):
        world.ready(service)
    verified = specdec("verify", *both, "--limit", "4", "--max-tokens", "16")
    assert (verified["prompts"], verified["matched"], verified["different"]) == (4, 4, 0)
    assert 0 < verified["accepted_tokens"] <= verified["draft_tokens"]

    brief = ("--protocol", "grpc", "--requests", "3", "--output-tokens", "12", "--warmup", "0")
    measured = specdec("bench", *both, *brief)
    (level,) = measured["levels"]
    (arm,) = level["speculative"]
    assert (arm["requests"], level["baseline"]["requests"], measured["errors"]) == (3, 3, 0)
    assert arm["acceptance_percent"] > 0
    assert arm["speedup_percent"]["value"] > 0
