"""A server that is told to stop finishes the answers it has begun."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from specdec.triton.repository import RepositoryPlan, render
from triton.asking import stream, text
from triton.server import Server

CLIENTS = 6
# Long enough that every answer is under way when the server is told, short of its exit timeout.
STEP_MS = 4.0


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

    def client(number: int) -> str:
        values = {"text_input": f"def f{number}():\n", "max_tokens": 150, "end_id": -1}
        with stream(server.url, "tensorrt_llm_bls", stream=True, **values) as answer:
            parts = iter(answer)
            found = [next(parts)]
            begun.wait(30)
            found.extend(parts)
        return text(found)

    with Server(executable, render(plan), tmp_path) as server, ThreadPoolExecutor(CLIENTS) as pool:
        answers = [pool.submit(client, number) for number in range(CLIENTS)]
        begun.wait(30)
        assert server.stop() == 0
        lengths = [len(answer.result()) for answer in answers]
    assert min(lengths) > 150
