"""vLLM's own OpenAI server on the shipped pair."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.processes import until
from support.shipped_pair import PAIR
from support.vllm_server import SMALL, VllmServer
from support.vllm_tests import installed

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.vllm(gibibytes=3)]
DRAFT = {"method": "draft_model", "model": str(PAIR / "draft"), "num_speculative_tokens": 4}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[VllmServer]:
    arguments = [*SMALL, "--served-model-name", "pair", "--speculative-config", json.dumps(DRAFT)]
    with VllmServer(installed(), tmp_path, arguments) as running:
        yield running


def _complete(server: VllmServer, prompt: str) -> Any:
    body = {"model": "pair", "prompt": prompt, "max_tokens": 32, "temperature": 0}
    response = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    return response.raise_for_status().json()


def test_server_completes_with_drafts_and_ends_with_its_engine(server: VllmServer) -> None:
    answer = _complete(server, "def add(a, b):\n")
    assert answer["usage"]["completion_tokens"] == 32
    metrics = httpx.get(f"{server.url}/metrics", timeout=60).text
    counts = re.findall(
        r'^vllm:spec_decode_num_accepted_tokens_per_pos_total\{.*position="(\d)".*\} (\S+)$',
        metrics,
        re.MULTILINE,
    )
    assert [position for position, _ in counts] == ["0", "1", "2", "3"]
    assert float(counts[0][1]) > 0

    os.kill(server.engine(), signal.SIGKILL)
    until(lambda: server.status() is not None, lambda: f"it runs: {server.log()[-500:]}", 60)
