"""The benchmark collects garbage before each of its blocks."""

import gc

import pytest


@pytest.fixture(autouse=True)
def _frozen() -> None:
    """Exempt the objects of earlier tests, which each collection would scan."""
    gc.freeze()
