"""Fixtures: engines of random checkpoints, built once per session, and schedulers."""

from collections.abc import Callable, Iterator

import pytest
from threadpoolctl import threadpool_limits

from specdec.images.backend.tensorrtllm.reference_engine.config import Lookahead
from specdec.images.backend.tensorrtllm.reference_engine.llama import Llama
from specdec.images.backend.tensorrtllm.reference_engine.scheduler import (
    Scheduler,
    SchedulerLimits,
)
from support.oracle import Tiny
from support.reference_engines import Gate, build, open_engine

Start = Callable[..., Scheduler]
Engine = Callable[[Tiny], Llama]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: with products this small, more threads only wait for each other."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Return a function that builds the engine of a tiny random checkpoint and caches it."""
    root = tmp_path_factory.mktemp("engines")
    made: dict[str, Llama] = {}

    def make(tiny: Tiny) -> Llama:
        key = repr(tiny)
        if key not in made:
            name = f"tiny{len(made)}"
            made[key] = open_engine(build(tiny.write(root / f"{name}-hf"), root / name))
        return made[key]

    return make


@pytest.fixture
def start() -> Iterator[Start]:
    """Yield a function that starts schedulers; close them after the test."""
    running: list[Scheduler] = []

    def make(model: Llama, lookahead: Lookahead | None = None, **limits: float) -> Scheduler:
        running.append(Scheduler(model, SchedulerLimits(**limits), lookahead))  # type: ignore[arg-type]
        return running[-1]

    yield make
    for scheduler in running:
        scheduler.close()


@pytest.fixture
def gated(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> tuple[Llama, Gate]:
    """Return a model, and the gate through which the test lets its steps run."""
    model = engine(Tiny())
    return model, Gate(model, monkeypatch)
