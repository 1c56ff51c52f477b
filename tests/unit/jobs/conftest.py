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
def read_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
    """Read the result in the Job's termination message."""
    path = tmp_path / "termination-log"
    monkeypatch.setenv("SPECDEC_TERMINATION_LOG", str(path))

    def read() -> dict[str, Any]:
        assert path.stat().st_size <= 4096
        value: dict[str, Any] = json.loads(path.read_text())
        return value

    return read


@pytest.fixture(scope="session")
def single_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a single public certificate authority."""
    end = "-----END CERTIFICATE-----\n"
    path = tmp_path_factory.mktemp("authorities") / "authority.pem"
    path.write_text(Path(certifi.where()).read_text("utf-8").partition(end)[0] + end)
    return path


@pytest.fixture(autouse=True)
def _trust_a_single_authority(single_authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust one authority: each client would take tens of milliseconds to load all of them."""
    monkeypatch.setenv("SSL_CERT_FILE", str(single_authority))
