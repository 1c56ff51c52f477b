"""A server that must stop first finishes the answers in flight, of every model."""

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from cluster.processes import DEADLINE_SECONDS, until
from specdec.triton import launch
from specdec.triton.layout import PLAIN
from specdec.triton.repository import RepositoryPlan
from support.programs import local
from support.triton_client import Arrays, ask, stream, text
from support.triton_server import Server
from triton.conftest import Serve

BLS = "tensorrt_llm_bls"
ENSEMBLE = "ensemble"
CLIENTS = 6
TOKENS = 75
# Every answer is still in flight when the hook begins, and ends before the hook times out.
BLS_STEP_MS = 4.0
# An answer takes 1.5 times the exit timeout of the tests' servers. So the server
# cuts it unless the hook waits for it.
ENSEMBLE_STEP_MS = 100.0


def values(number: int, *, streams: bool) -> dict[str, Any]:
    return {
        "text_input": f"def f{number}():\n",
        "max_tokens": TOKENS,
        "end_id": -1,
        "stream": streams,
    }


def begun(server: Server, model: str) -> float:
    """Return the number of requests that a model has begun so far."""
    lines = server.get_metrics().splitlines()
    counters = [line for line in lines if line.startswith("nv_inference_count{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in counters if f'model="{model}"' in line)


def drain(server: Server) -> None:
    """Stop the server as the kubelet does: run the hook, then send SIGTERM."""
    hook = launch.pre_stop(
        PLAIN,
        linger_seconds=0,
        exit_timeout_seconds=DEADLINE_SECONDS,
        metrics_port=server.metrics_port,
    )
    subprocess.run(local(hook), check=True)
    assert server.stop() == 0


@pytest.mark.parametrize("length", [0, 3], ids=["plain", "speculative"])
def test_answers_in_flight_are_finished(
    serve: Serve, draft_target_plan: RepositoryPlan, length: int
) -> None:
    plan = replace(
        draft_target_plan,
        target=replace(draft_target_plan.target, step_latency_ms=BLS_STEP_MS),
        draft_tokens=length,
    )
    all_begun = threading.Barrier(CLIENTS + 1)

    def client(number: int) -> str:
        with stream(server.url, BLS, **values(number, streams=True)) as answer:
            parts = iter(answer)
            received = [next(parts)]
            all_begun.wait(DEADLINE_SECONDS)
            received.extend(parts)
        return text(received)

    with serve(plan) as server, ThreadPoolExecutor(CLIENTS) as pool:
        desired = [
            text(ask(server.url, BLS, **values(number, streams=True))) for number in range(CLIENTS)
        ]
        answers = [pool.submit(client, number) for number in range(CLIENTS)]
        all_begun.wait(DEADLINE_SECONDS)
        drain(server)
        assert [answer.result() for answer in answers] == desired


@pytest.mark.parametrize("streams", [True, False], ids=["streams", "whole"])
def test_answers_of_the_ensemble_in_flight_are_finished(
    serve: Serve, draft_target_plan: RepositoryPlan, streams: bool
) -> None:
    """Unlike a stream, a whole answer in flight changes no counter of Triton until it ends."""
    plan = replace(
        draft_target_plan,
        target=replace(draft_target_plan.target, step_latency_ms=ENSEMBLE_STEP_MS),
    )

    def answer(number: int) -> list[Arrays]:
        return ask(server.url, ENSEMBLE, **values(number, streams=streams))

    with serve(plan) as server, ThreadPoolExecutor(CLIENTS) as pool:
        desired = [text(parts) for parts in pool.map(answer, range(CLIENTS))]
        before = begun(server, "tensorrt_llm")
        answers = [pool.submit(answer, number) for number in range(CLIENTS)]
        until(
            lambda: begun(server, "tensorrt_llm") == before + CLIENTS,
            lambda: "the engine has not begun every answer",
        )
        drain(server)
        assert [text(future.result()) for future in answers] == desired


def test_a_server_without_work_is_drained_at_once(server: Server) -> None:
    hook = launch.pre_stop(
        PLAIN,
        linger_seconds=0,
        exit_timeout_seconds=2 * DEADLINE_SECONDS,
        metrics_port=server.metrics_port,
    )
    subprocess.run(local(hook), check=True, timeout=DEADLINE_SECONDS)
