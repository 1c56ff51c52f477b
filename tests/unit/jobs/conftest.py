"""Fixtures of the Jobs: a volume, a termination message, and no local hub configuration."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import certifi
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


@pytest.fixture(scope="session")
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one of the authorities that the world trusts."""
    end = "-----END CERTIFICATE-----\n"
    path = tmp_path_factory.mktemp("authorities") / "one.pem"
    path.write_text(Path(certifi.where()).read_text("utf-8").partition(end)[0] + end)
    return path


@pytest.fixture(autouse=True)
def _few_authorities(one_authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client reads those it trusts: tens of milliseconds for all of the world's."""
    monkeypatch.setenv("SSL_CERT_FILE", str(one_authority))
