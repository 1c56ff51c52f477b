"""What holds for all tests."""

import gc
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.progress import report
from support import bls, effort, unchanged
from support.lanes import Lanes

effort.register()


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "leave out tests of what has not changed since they passed"
    parser.addoption(unchanged.OPTION, action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(unchanged.Unchanged(config))


def pytest_sessionstart() -> None:
    """Who runs pytest directly has what `make setup` has."""
    try:
        bls.build(report)
    except bls.BuildError as error:
        pytest.exit(str(error), returncode=2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes | None:
    """With `--dist loadgroup`, each control plane, node or set of servers stays in one process."""
    return Lanes(config, log) if config.option.dist == "loadgroup" else None


def pytest_collection_finish() -> None:
    """Let the collector pass over modules and tests, which stay to the end: they are most of it.

    The benchmark's code collects before each of its blocks, and each time looked at all of them.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    """Put back the handler that a Job's entry point, run in this process, leaves behind."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
