"""`specdec plan` and `render` use the namespace of the kubeconfig's context, as kubectl does."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from specdec.tools.cli.app import app
from specdec.tools.cli.kubeconfig import namespace

SAMPLE = Path(__file__).parents[3] / "manifests/samples/reference-baseline.yaml"
CONTEXTS = [
    {"name": "here", "context": {"namespace": "models"}},
    {"name": "bare", "context": {"cluster": "a"}},
]


def write(path: Path, current: str) -> str:
    path.write_text(yaml.safe_dump({"current-context": current, "contexts": CONTEXTS}), "utf-8")
    return str(path)


def test_plan_names_the_namespace_of_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", write(tmp_path / "config", "here"))
    result = CliRunner().invoke(app, ["plan", "-f", str(SAMPLE)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("models/reference-baseline is accepted")
    rendered = CliRunner().invoke(app, ["render", "-f", str(SAMPLE), "-o", str(tmp_path / "out")])
    assert rendered.exit_code == 0, rendered.output
    service = next((tmp_path / "out").rglob("*service*.yaml"))
    assert yaml.safe_load(service.read_text("utf-8"))["metadata"]["namespace"] == "models"


def test_namespace_of_the_resource_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", write(tmp_path / "config", "here"))
    body = yaml.safe_load(SAMPLE.read_text("utf-8"))
    body["metadata"]["namespace"] = "own"
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(body), "utf-8")
    result = CliRunner().invoke(app, ["plan", "--json", "-f", str(tmp_path / "model.yaml")])
    assert json.loads(result.stdout)["resource"]["namespace"] == "own"


@pytest.mark.parametrize("text", ["", "[", "[]", "contexts: 1", "current-context: here"])
def test_kubeconfig_that_cannot_be_used_means_default(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(text, "utf-8")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert namespace() == "default"
    monkeypatch.setenv("KUBECONFIG", write(tmp_path / "second", "bare"))
    assert namespace() == "default"


def test_several_kubeconfigs_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "first").write_text("current-context: here", "utf-8")
    second = write(tmp_path / "second", "bare")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'first'}:{tmp_path / 'missing'}:{second}")
    assert namespace() == "models"
