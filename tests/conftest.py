"""Options, hooks and fixtures of all tests."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from cluster.progress import report
from support import bls, effort, unchanged
from support.lanes import Lanes

effort.register()
# Go programs collect garbage less often. API servers then need a tenth less processor time, and
# kubectl, which is started hundreds of times, half as much.
os.environ.setdefault("GOGC", "300")
# NumPy's threads wait in a loop when they start: an import takes twice the processor time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "leave out tests of what has not changed since they passed"
    parser.addoption(unchanged.OPTION, action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(unchanged.Unchanged(config))


def pytest_sessionstart() -> None:
    """Build the library of the BLS, as `make setup` does, for a direct call of pytest."""
    try:
        bls.build(report)
    except bls.BuildError as error:
        pytest.exit(str(error), returncode=2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes | None:
    """With `--dist loadgroup`, use one process for each control plane, node or set of servers."""
    return Lanes(config, log) if config.option.dist == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection, which would take a third of the time.

    Most objects are modules and tests, which live to the end. Later collections also skip them,
    because the benchmark collects garbage before each of its blocks.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    """Restore the signal handler that the entry point of a Job replaces in this process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
