"""A small checkpoint, and the output folder of its engine."""

from pathlib import Path

import pytest

from support.oracle import Tiny


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Tiny().write(tmp_path / "checkpoints" / "abc")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "engines" / "k1"
