"""Options, hooks and fixtures of all tests."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from typing_extensions import override
from xdist.scheduler import LoadScopeScheduling

from cluster.progress import report
from support import bls, effort, vllm_tests

effort.register()
# Go programs collect garbage less often. API servers then need a tenth less processor time, and
# kubectl, which is started hundreds of times, half as much.
os.environ.setdefault("GOGC", "300")
# NumPy's threads wait in a loop when they start: an import takes twice the processor time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# The files of each of these folders share a control plane, a node or servers.
SHARING = ("chart", "cluster", "controlplane", "e2e", "triton", "vllm_engine")


def pytest_sessionstart() -> None:
    """Build the library of the BLS, as `make setup` does, for a direct call of pytest."""
    try:
        bls.build(report)
    except bls.BuildError as error:
        pytest.exit(str(error), returncode=2)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test with the marker `vllm` where its version is not installed."""
    for marker in item.iter_markers("vllm"):
        vllm_tests.require(*marker.args, **marker.kwargs)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "Folders | None":
    """With `--dist loadscope`, run each folder of SHARING in one process, and each other file."""
    return Folders(config, log) if config.option.dist == "loadscope" else None


class Folders(LoadScopeScheduling):  # type: ignore[misc]  # its package has no types
    """Distributes folders that share started programs, so that one process starts them once."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = file.split("/")[1]  # of tests/
        return folder if folder in SHARING else file


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
