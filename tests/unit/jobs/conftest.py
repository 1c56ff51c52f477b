"""Fixtures of the Jobs: a volume, a termination message, and no local hub configuration."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "models"
    path.mkdir()
    return path


@pytest.fixture
def read_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
    """Read the result in the Job's termination message."""
    path = tmp_path / "termination-log"
    monkeypatch.setenv("SPECDEC_TERMINATION_LOG", str(path))

    def read() -> dict[str, Any]:
        assert path.stat().st_size <= 4096
        value: dict[str, Any] = json.loads(path.read_text())
        return value

    return read
