"""A fake API server, and a kubeconfig for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fake_api import Api, kubeconfig, serving


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def login(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with serving(api) as address:
        file = kubeconfig(tmp_path / "config", address)
        monkeypatch.setenv("KUBECONFIG", str(file))
        yield file
