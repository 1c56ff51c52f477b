"""The simulated rank serves only after its load and until its process has ended."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from typing_extensions import override

from cluster.processes import DEADLINE_SECONDS, until
from specdec.images.backend.tensorrtllm.reference_engine.simulated_rank import SimulatedRank
from support.oracle import Tiny
from support.reference_engines import ask
from unit.engine.conftest import Engine, Start

PROMPT = [1, 2, 3]


@pytest.fixture
def rank() -> Iterator[SimulatedRank]:
    made = SimulatedRank("tensorrt_llm", 3600.0)
    yield made
    made.close()


def test_rank_serves_from_the_end_of_its_load_to_its_own(rank: SimulatedRank) -> None:
    assert not rank.serving.is_set()
    os.kill(rank.pid, signal.SIGUSR1)
    assert rank.await_load()
    os.kill(rank.pid, signal.SIGKILL)
    until(lambda: not rank.serving.is_set(), lambda: "the rank still serves")


def test_rank_loads_for_the_time_it_is_given() -> None:
    rank = SimulatedRank("tensorrt_llm", 0.0)
    assert rank.await_load()
    rank.close()


def test_rank_that_ends_while_it_loads_never_serves(rank: SimulatedRank) -> None:
    os.kill(rank.pid, signal.SIGKILL)
    assert not rank.await_load()


class Gate(threading.Event):
    """An event that reports when the scheduler waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Semaphore(0)

    @override
    def wait(self, timeout: float | None = None) -> bool:
        self.reached.release()
        return super().wait(timeout)


def test_no_step_runs_while_the_gate_is_closed(start: Start, engine: Engine) -> None:
    gate = Gate()
    scheduler = start(engine(Tiny()), gate=gate)
    call = ask(scheduler, PROMPT, 1)
    assert gate.reached.acquire(timeout=DEADLINE_SECONDS)
    assert (scheduler.steps, call.updates) == (0, [])
    gate.set()
    call.wait()
    assert scheduler.steps == 1
    gate.clear()
    blocked = ask(scheduler, PROMPT, 1)
    assert gate.reached.acquire(timeout=DEADLINE_SECONDS)
    assert (scheduler.steps, blocked.updates) == (1, [])
