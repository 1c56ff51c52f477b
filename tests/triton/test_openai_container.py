"""The endpoint, started with its container's command beside the server of a generated repository.

The operator generates command and repository from the sample, which also names the chat template.
The test replaces only the ports and the image's `python`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import yaml

from specdec.client import Client, Request
from specdec.tools.dry_run.plan import ResourcePlan
from support.golden_cases import SAMPLES
from support.openai_endpoint import OpenAIEndpoint
from support.planned_samples import planned
from support.triton_server import Server
from triton.conftest import Serve
from triton.test_samples import Volume, volume

__all__ = ["volume"]
SAMPLE, NAME = "reference-openai", "tiny"
LENGTH = 24
QUESTION: list[Any] = [{"role": "user", "content": "def read_lines(path):"}]
Json = dict[str, Any]


def pod(plan: ResourcePlan) -> Json:
    (body,) = [item for item in plan.objects if item["kind"] == "Deployment"]
    spec: Json = body["spec"]["template"]["spec"]
    return spec


def chat_template() -> str:
    """Return the template from the ConfigMap that the sample names."""
    reference = pod(planned(SAMPLE))["volumes"]
    (source,) = [item["configMap"] for item in reference if item["name"] == "chat-template"]
    file = SAMPLES[SAMPLE].with_name("reference-pair.yaml")
    (body,) = [
        item
        for item in yaml.safe_load_all(file.read_text("utf-8"))
        if item["kind"] == "ConfigMap" and item["metadata"]["name"] == source["name"]
    ]
    return str(body["data"][source["items"][0]["key"]])


@pytest.fixture(scope="module")
def server(volume: Volume, serve: Serve) -> Iterator[Server]:
    plan = planned(SAMPLE)
    volume.fill(plan)
    with serve(plan.files, volume.within) as running:
        yield running


@pytest.fixture(scope="module")
def endpoint(
    volume: Volume, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenAIEndpoint]:
    (container,) = [c for c in pod(planned(SAMPLE))["containers"] if c["name"] == "openai"]
    file = tmp_path_factory.mktemp("template") / "chat_template.jinja"
    file.write_text(chat_template(), "utf-8")
    with OpenAIEndpoint.of_container(
        container["command"],
        server.url,
        volume.within,
        {"/specdec/chat/chat_template.jinja": file},
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(endpoint: OpenAIEndpoint) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=endpoint.url, api_key="none", max_retries=0) as opened:
        yield opened


def test_chat_is_streamed_with_speculation_counted(server: Server, client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create
    chunks = list(
        create(
            model=NAME,
            messages=QUESTION,
            max_completion_tokens=LENGTH,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"include_metrics": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    with Client(server.url) as direct:
        prompt = f"{QUESTION[0]['content']}\n"
        request = Request(prompt, max_tokens=LENGTH, draft_tokens=0, stream=False)
        assert text == direct.ask(request).text
    pieces = [c for c in chunks if c.choices and c.choices[0].delta.content]
    assert 1 < len(pieces) < LENGTH, "several tokens of a round come in one piece"
    counts = chunks[-1].metrics["speculative_decoding"]
    assert 0 < counts["num_accepted_draft_tokens"] <= counts["num_draft_tokens"]


def test_whole_answer_equals_the_stream(client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create
    fields: Json = {"model": NAME, "messages": QUESTION, "max_completion_tokens": LENGTH}
    answer = create(**fields)
    stream = create(**fields, stream=True)
    assert answer.choices[0].message.content == "".join(
        chunk.choices[0].delta.content or "" for chunk in stream
    )
    assert answer.usage.completion_tokens_details.accepted_prediction_tokens > 0


def test_missing_chat_template_ends_the_container_with_a_sentence(
    volume: Volume, server: Server
) -> None:
    (container,) = [c for c in pod(planned(SAMPLE))["containers"] if c["name"] == "openai"]
    command = [sys.executable, *container["command"][1:]]
    ended = subprocess.run(
        [*volume.within, *command], capture_output=True, text=True, check=False, env=os.environ
    )
    assert ended.returncode == 2
    assert "/specdec/chat/chat_template.jinja cannot be read" in ended.stderr
    assert "Traceback" not in ended.stderr
