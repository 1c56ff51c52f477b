"""A Job's surroundings: a volume, a place for its result, and no trace of the developer's hub."""

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
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
    """What the Job left in its termination message."""
    path = tmp_path / "termination-log"
    monkeypatch.setenv("SPECDEC_TERMINATION_LOG", str(path))

    def read() -> dict[str, Any]:
        assert path.stat().st_size <= 4096
        value: dict[str, Any] = json.loads(path.read_text())
        return value

    return read
