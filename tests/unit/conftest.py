"""Fixtures: a single trusted authority, no kubeconfig, and a browser for tests of pages."""

import os
import shutil
from pathlib import Path

import certifi
import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> str:
    """Return the path of a browser; skip the test if this machine has none."""
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if executable is None:
        pytest.skip(f"no browser: put one of {', '.join(BROWSERS)} on PATH")
    return executable


@pytest.fixture(scope="session")
def single_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a single public certificate authority."""
    end = "-----END CERTIFICATE-----\n"
    path = tmp_path_factory.mktemp("authorities") / "authority.pem"
    path.write_text(Path(certifi.where()).read_text("utf-8").partition(end)[0] + end)
    return path


@pytest.fixture(autouse=True)
def _without_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the login of this machine, whose namespace `specdec plan` would print."""
    monkeypatch.setenv("KUBECONFIG", os.devnull)


@pytest.fixture(autouse=True)
def _trust_a_single_authority(single_authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust a single authority: loading all of them takes each client tens of milliseconds."""
    monkeypatch.setenv("SSL_CERT_FILE", str(single_authority))
