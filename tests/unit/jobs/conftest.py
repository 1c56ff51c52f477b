"""Fixtures of the Jobs: a volume, a termination message, and no local hub configuration."""

from pathlib import Path

import pytest


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "models"
    path.mkdir()
    return path


@pytest.fixture(autouse=True)
def _termination_message(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path_factory.mktemp("termination") / "message"
    monkeypatch.setenv("SPECDEC_TERMINATION_LOG", str(path))
