"""What holds for all tests."""

import gc

import pytest
from hypothesis import settings

import library
from cluster.progress import report

# An example that is slow on a busy machine is no failure; measured limits are benchmarks.
settings.register_profile("specdec", deadline=None)
settings.load_profile("specdec")


def pytest_sessionstart() -> None:
    """Who runs pytest directly has what `make setup` has."""
    try:
        library.build(report)
    except library.LibraryError as error:
        pytest.exit(str(error), returncode=2)


def pytest_collection_finish() -> None:
    """Let the collector pass over modules and tests, which stay to the end: they are most of it.

    The benchmark's code collects before each of its blocks, and each time looked at all of them.
    """
    gc.collect()
    gc.freeze()
