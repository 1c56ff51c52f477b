"""The endpoint of a sample with backend PyTorch, with the stand-in for the LLM API.

The container's command starts the endpoint. The LLM API's model sends the whole text so far with
each response, and has other inputs than the BLS.
"""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from cluster.processes import DEADLINE_SECONDS
from specdec.tools.dry_run.plan import ResourcePlan, make
from specdec.tools.dry_run.resource import read
from support.golden_cases import SAMPLES
from support.openai_endpoint import OpenAIEndpoint
from support.planned_samples import IMAGES
from support.triton_server import Server
from triton.conftest import Serve
from triton.test_samples import Volume, volume

__all__ = ["volume"]
NAME, LENGTH, PROMPT = "pytorch-ngram", 40, "def read_lines(path):\n"
COMPLETION: dict[str, Any] = {"model": NAME, "prompt": PROMPT, "max_tokens": LENGTH}


@pytest.fixture(scope="module")
def plan() -> ResourcePlan:
    body = read(str(SAMPLES[NAME]))
    body["spec"]["serving"]["openAI"] = {}
    result = make(body, IMAGES)
    assert not result.refusal
    return result


@pytest.fixture(scope="module")
def server(plan: ResourcePlan, volume: Volume, serve: Serve) -> Iterator[Server]:
    volume.fill(plan)
    with serve(plan.files, volume.within) as running:
        yield running


@pytest.fixture(scope="module")
def client(plan: ResourcePlan, server: Server, volume: Volume) -> Iterator[openai.OpenAI]:
    (body,) = [item for item in plan.objects if item["kind"] == "Deployment"]
    _, container = body["spec"]["template"]["spec"]["containers"]
    start = OpenAIEndpoint.of_container(container["command"], server.url, volume.within, {})
    with (
        start as running,
        openai.OpenAI(base_url=running.url, api_key="none", max_retries=0) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def expected(server: Server) -> str:
    """Return the answer of Triton's own endpoint."""
    url = f"http://127.0.0.1:{server.http_port}/v2/models/tensorrt_llm/generate"
    body = {"text_input": PROMPT, "sampling_param_max_tokens": LENGTH}
    request = urllib.request.Request(url, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as reply:
        return str(json.loads(reply.read())["text_output"])


def test_stream_has_only_new_text_and_counts_of_draft_tokens(
    client: openai.OpenAI, expected: str
) -> None:
    create: Any = client.completions.create
    chunks = list(create(**COMPLETION, stream=True, extra_body={"include_metrics": True}))
    pieces = [chunk.choices[0].text for chunk in chunks]
    assert "".join(pieces) == expected
    assert sum(map(bool, pieces)) > 1
    assert chunks[-1].choices[0].finish_reason == "length"
    counts = chunks[-1].metrics["speculative_decoding"]
    assert 0 < counts["num_accepted_draft_tokens"] <= counts["num_draft_tokens"]


def test_whole_answer_has_the_same_text(client: openai.OpenAI, expected: str) -> None:
    answer = client.completions.create(**COMPLETION)
    assert answer.choices[0].text == expected
    assert answer.choices[0].finish_reason == "length"
    # The model counts no tokens.
    assert answer.usage is None


@pytest.mark.parametrize("stream", [False, True])
def test_stop_string_is_cut(client: openai.OpenAI, expected: str, stream: bool) -> None:
    stop = expected[10:14]
    create: Any = client.completions.create
    answer = create(**COMPLETION, stop=stop, stream=stream)
    choices = [part.choices[0] for part in (answer if stream else [answer])]
    assert "".join(choice.text for choice in choices) == expected[: expected.index(stop)]
    assert choices[-1].finish_reason == "stop"


@pytest.mark.parametrize("name", ["num_draft_tokens", "min_tokens"])
def test_field_that_the_model_does_not_read_is_refused(client: openai.OpenAI, name: str) -> None:
    with pytest.raises(openai.BadRequestError, match=f"no input {name}; leave it out"):
        client.completions.create(**COMPLETION, extra_body={name: 2})
