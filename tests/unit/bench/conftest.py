"""The benchmark collects garbage before each of its blocks."""

import gc

import pytest


@pytest.fixture(autouse=True)
def _frozen() -> None:
    """Exempt objects of earlier tests: otherwise every collection scans them."""
    gc.freeze()
