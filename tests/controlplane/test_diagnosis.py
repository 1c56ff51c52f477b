"""`specdec logs` on a real API server, which fetches logs from a kubelet."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from cluster import ControlPlane
from controlplane.kubelet import LogNode, log_node
from controlplane.operating import until
from controlplane.pipeline import resource
from specdec.cli.app import app
from specdec.inspect import logs

pytestmark = pytest.mark.controlplane


@pytest.fixture
def namespace(bare: ControlPlane) -> str:
    """A namespace with the resource `pair`, which no operator reconciles."""
    name = f"diagnosis-{secrets.token_hex(4)}"
    bare.kubectl("create", "namespace", name)
    # A pod cannot be created before.
    until(lambda: bare.get("serviceaccounts", "-n", name)["items"], "the account default")
    bare.kubectl("-n", name, "apply", "-f", "-", stdin=yaml.safe_dump(resource("pair")))
    return name


@pytest.fixture
def node(bare: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[LogNode]:
    with log_node(bare, namespace, tmp_path) as node:
        yield node


def specdec(plane: ControlPlane, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], env={"KUBECONFIG": str(plane.kubeconfig)})


def test_logs_come_from_every_pod(
    bare: ControlPlane, namespace: str, node: LogNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "has no pod" in specdec(bare, "logs", "pair", "-n", namespace).stderr
    node.run("pair-0", "server", {"server": "starts\nserves", "openai": "listens"})
    node.run("pair-fetch-1", "fetch", {"fetch": "fetches"})
    result = specdec(bare, "logs", "pair", "-n", namespace)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = ["pair-0/server: starts", "pair-0/server: serves", "pair-0/openai: listens"]
    assert sorted(result.stdout.splitlines()) == sorted([*lines, "pair-fetch-1: fetches"])
    only = specdec(bare, "logs", "pair", "-n", namespace, "--component", "fetch")
    assert only.stdout == "pair-fetch-1: fetches\n"

    # Resource and pods are deleted as soon as all lines were followed.
    expected = [*lines[:2], "pair-fetch-1: fetches"]
    shown: list[str] = []

    def write(text: str) -> None:
        shown.append(text)
        if len(shown) == len(expected):
            bare.kubectl("-n", namespace, "delete", "specm", "pair", "--wait=false")
            bare.kubectl("-n", namespace, "delete", "pods", "--all", "--force", "--grace-period=0")

    node.logs.pop(("pair-0", "openai"))
    monkeypatch.setattr(logs, "INTERVAL", 0.1)
    monkeypatch.setattr("specdec.cli.options.print_text", write)
    result = specdec(bare, "logs", "pair", "-n", namespace, "-f")
    assert result.exit_code == 0, result.output
    assert result.stderr.endswith(f"specdec: {namespace}/pair was deleted\n")
    assert sorted(shown) == sorted(expected)
