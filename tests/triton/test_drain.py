"""A server that is told to stop finishes the answers it has begun."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specdec.triton import launch
from specdec.triton.ranks import PLAIN
from specdec.triton.repository import RepositoryPlan, render
from triton.asking import ask, stream, text
from triton.server import Server

BLS = "tensorrt_llm_bls"
CLIENTS = 6
# Long enough that every answer is under way when the server is told, short of its exit timeout.
STEP_MS = 2.0


@pytest.mark.parametrize("length", [0, 3], ids=["plain", "speculative"])
def test_answers_in_flight_are_finished(
    executable: Path, draft_target_plan: RepositoryPlan, tmp_path: Path, length: int
) -> None:
    plan = replace(
        draft_target_plan,
        target=replace(draft_target_plan.target, step_latency_ms=STEP_MS),
        draft_tokens=length,
    )
    begun = threading.Barrier(CLIENTS + 1)

    def values(number: int) -> dict[str, Any]:
        return {
            "text_input": f"def f{number}():\n",
            "max_tokens": 150,
            "end_id": -1,
            "stream": True,
        }

    def client(number: int) -> str:
        with stream(server.url, BLS, **values(number)) as answer:
            parts = iter(answer)
            found = [next(parts)]
            begun.wait(30)
            found.extend(parts)
        return text(found)

    with Server(executable, render(plan), tmp_path) as server, ThreadPoolExecutor(CLIENTS) as pool:
        wanted = [text(ask(server.url, BLS, **values(number))) for number in range(CLIENTS)]
        answers = [pool.submit(client, number) for number in range(CLIENTS)]
        begun.wait(30)
        hook = launch.pre_stop(
            PLAIN, linger_seconds=0, exit_timeout_seconds=60, metrics_port=server.metrics_port
        )
        # As the kubelet does: the hook first, SIGTERM when it has ended.
        subprocess.run([sys.executable, *hook[1:]], check=True, timeout=90)
        assert server.stop() == 0
        assert [answer.result() for answer in answers] == wanted
