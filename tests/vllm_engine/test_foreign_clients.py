"""Clients of others speak to vLLM's own server through the proxy of its pod."""

from collections.abc import Iterator
from typing import Any

import pytest

from support import foreign_clients
from support.vllm_serve_pod import MODEL, Pod
from support.vllm_tests import installed

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.vllm(gibibytes=4)]
PROMPT, LENGTH = "def read_lines(path):", 24


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    with Pod(installed(), tmp_path_factory.mktemp("pod")) as running:
        yield running


def answers(name: str, pod: Pod, *options: str) -> Any:
    """Return what a client's program reports of its answers."""
    return foreign_clients.program(name, f"{pod.url}/v1", MODEL, PROMPT, str(LENGTH), *options)


def test_langchain_reads_chats_and_completions(pod: Pod) -> None:
    got = answers("langchain", pod, "chat,text")
    assert got["text"]
    assert {got[name] for name in ("chat", "chat stream", "text", "text stream")} == {got["text"]}
    assert got["batch"] == [got["text"], got["text"]]
    assert (got["tokens"], got["stream tokens"]) == (LENGTH, LENGTH)


def test_litellm_reads_chats_completions_and_refusals(pod: Pod) -> None:
    got = answers("litellm", pod)
    assert got["text"]
    assert {got[name] for name in ("chat", "chat stream", "text", "text stream")} == {got["text"]}
    assert got["tokens"] == LENGTH
    assert "top_logprobs is 1000" in got["refusal"]
