"""The OpenAI endpoint of a real pod, through the Service and with the official client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import yaml

from demo.story import SAMPLES
from e2e.polling import listens
from e2e.world import DEADLINE_SECONDS, World, merged
from specdec.client import Client, Request

NAME, SERVED, PORT = "reference-openai", "tiny", 9000
QUESTION: list[Any] = [{"role": "user", "content": "def read_lines(path):"}]
PROMPT = "def read_lines(path):\n"
LENGTH = 24
Object = dict[str, Any]


def sample(**spec: Any) -> Object:
    """The sample without GPUs or a verification, which would disturb the counts."""
    body: Object = yaml.safe_load((SAMPLES / f"{NAME}.yaml").read_text("utf-8"))
    body["spec"] = merged(body["spec"], {"verification": {"mode": "Disabled"}, **spec})
    return body


@pytest.fixture
def client(world: World) -> Iterator[openai.OpenAI]:
    """A client of the Service's address; the sample is served."""
    ready = world.ready(world.apply(sample()))
    (target,) = ready["status"]["endpoints"]
    assert target["openAI"] == f"http://{NAME}.default.svc:{PORT}/v1"
    host = world.address(NAME).partition(":")[0]
    url = f"{host}:{PORT}"
    world.wait(lambda: listens(url), DEADLINE_SECONDS, lambda: f"{url} takes no connection")
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
    with Client(world.address(NAME), timeout=60) as direct:
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
    """Delete the pod while a client streams one answer after another: none may be cut."""
    outcomes: list[str] = []
    started, deleted = threading.Event(), threading.Event()

    def streaming() -> None:
        # The last answer begins after the pod was deleted.
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


def test_missing_chat_template_is_reported_by_the_condition(world: World) -> None:
    body = sample(serving={"openAI": {"chatTemplate": {"name": "missing-chat"}}})
    body["metadata"]["name"] = "no-template"
    world.apply(body)
    message = world.until("no-template", "Available", "CrashLoop")["message"]
    assert "container openai of pod no-template" in message
    assert "chat_template.jinja cannot be read" in message
