"""A fake API server with an operator, a login to it, and the command that uses both."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from specdec.tools.certify import live
from specdec.tools.cli.app import app
from support.fake_api import kubeconfig, serving
from unit.certify.fake_operator import CLAIMS, FakeOperator

Certify = Callable[..., Result]


@pytest.fixture(autouse=True)
def _frozen() -> None:
    """Freeze the objects of earlier tests, so that garbage collections of the load are fast."""
    gc.freeze()


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOperator]:
    """Yield a server with the claim of the shipped pair and without nodes."""
    operator = FakeOperator()
    operator.objects["/api/v1/nodes"] = []
    operator.objects[f"{CLAIMS}/reference-pair"] = {"metadata": {"name": "reference-pair"}}
    with serving(operator) as address:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", address)))
        yield operator


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def certify(out: Path, monkeypatch: pytest.MonkeyPatch) -> Certify:
    """Return a function that runs the command with the Reference backend, without pauses."""
    monkeypatch.setattr(live, "INTERVAL", 0.0)

    def run(*arguments: str) -> Result:
        given = ["certify", "--output", str(out), *arguments]
        if "--backend" not in arguments:
            given += ["--backend", "Reference"]
        return CliRunner().invoke(app, given, catch_exceptions=False)

    return run
