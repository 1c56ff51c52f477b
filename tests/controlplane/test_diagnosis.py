"""`specdec logs`, `check` and `report` on a real API server, which fetches logs from a kubelet."""

import json
import secrets
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from cluster import ControlPlane
from controlplane.kubelet import LogNode, log_node
from controlplane.operating import Object, until
from controlplane.pipeline import resource
from specdec.tools.cli.app import app
from specdec.tools.inspect import logs

pytestmark = pytest.mark.controlplane
ROOT = Path(__file__).parents[2]


@pytest.fixture
def namespace(bare: ControlPlane) -> str:
    """Return a namespace with the resource `pair`, which no operator reconciles."""
    name = f"diagnosis-{secrets.token_hex(4)}"
    bare.kubectl("create", "namespace", name)
    # Pods cannot be created before their service account.
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

    # The test deletes the resource and its pods once the command has printed all lines.
    expected = [*lines[:2], "pair-fetch-1: fetches"]
    shown: list[str] = []

    def write(text: str) -> None:
        shown.append(text)
        if len(shown) == len(expected):
            bare.kubectl("-n", namespace, "delete", "specm", "pair", "--wait=false")
            bare.kubectl("-n", namespace, "delete", "pods", "--all", "--force", "--grace-period=0")

    node.logs.pop(("pair-0", "openai"))
    monkeypatch.setattr(logs, "INTERVAL", 0.1)
    monkeypatch.setattr("specdec.tools.cli.options.print_text", write)
    result = specdec(bare, "logs", "pair", "-n", namespace, "-f")
    assert result.exit_code == 0, result.output
    assert result.stderr.endswith(f"specdec: {namespace}/pair was deleted\n")
    assert sorted(shown) == sorted(expected)


def test_check_compares_the_live_cluster(bare: ControlPlane, namespace: str) -> None:
    manifest = (ROOT / "manifests" / "install" / "deployment.yaml").read_text()
    own = manifest.replace("specdec-system", namespace)
    labels = "app.kubernetes.io/name=specdec-operator"
    before = checks(bare, namespace)
    bare.kubectl("apply", "-f", "-", stdin=own)
    try:
        bare.kubectl("-n", namespace, "label", "deploy", "specdec-operator", labels)
        image = "operator=localhost/specdec/operator:dev"
        bare.kubectl("-n", namespace, "set", "image", "deploy/specdec-operator", image)
        after = checks(bare, namespace)
    finally:
        bare.kubectl("delete", "-f", "-", stdin=own)
    # The live CRD has the schema of this release.
    assert before["API server"]["result"] == before["CRD"]["result"] == "ok"
    assert before["rights"]["result"] == "ok"
    assert (before["operator"]["result"], after["operator"]["result"]) == ("problem", "problem")
    assert "no Deployment" in before["operator"]["message"]
    assert "has no available pod" in after["operator"]["message"]
    assert "only nodes on which these images were loaded" in after["images"]["message"]
    assert "only the backend Reference runs" in before["GPUs"]["message"]
    assert before["storage"]["message"] == "there is no storage class"


def checks(plane: ControlPlane, namespace: str) -> dict[str, Object]:
    """Return the results of `specdec check`, which must report a problem, by check name."""
    result = specdec(plane, "check", "-n", namespace, "--json")
    assert result.exit_code == 1, result.output
    return {item["name"]: item for item in json.loads(result.stdout)["checks"]}


def test_check_names_missing_rights(bare: ControlPlane, namespace: str) -> None:
    bare.kubectl("-n", namespace, "create", "serviceaccount", "guest")
    guest = bare.service_account(namespace, "guest")
    arguments = ["check", "-n", namespace, "--json"]
    result = CliRunner().invoke(app, arguments, env={"KUBECONFIG": str(guest)})
    assert result.exit_code == 1, result.output
    output = {item["name"]: item for item in json.loads(result.stdout)["checks"]}
    assert output["rights"]["result"] == "problem"
    assert "get pods/log (for status and logs)" in output["rights"]["message"]
    assert output["CRD"]["result"] == output["operator"]["result"] == "warning"
    assert "cannot list resource" in output["GPUs"]["message"]


def test_report_has_objects_and_logs_without_secrets(
    bare: ControlPlane, namespace: str, node: LogNode, tmp_path: Path
) -> None:
    token = f"hf_{secrets.token_hex(16)}"
    node.run("pair-0", "server", {"server": f"starts with {token}"}, HUB_PASSWORD="planted word")
    labels = "specdec.dev/model=pair"
    in_namespace = ("-n", namespace)
    bare.kubectl(*in_namespace, "create", "secret", "generic", "hub", "--from-literal=token=abc")
    bare.kubectl(*in_namespace, "create", "configmap", "pair-cm", f"--from-literal=a={token}")
    for item in ("secret/hub", "configmap/pair-cm"):
        bare.kubectl(*in_namespace, "label", item, labels)
    path = tmp_path / "report.tar.gz"
    result = specdec(bare, "report", "pair", "-n", namespace, "--output", str(path))
    assert result.exit_code == 0, result.output
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "files", filter="data")
    folder = tmp_path / "files" / "report"
    packed = {str(f.relative_to(folder)): f.read_text() for f in folder.rglob("*") if f.is_file()}
    objects = f"objects/{namespace}"
    for kept in ("speculativemodel-pair", "pod-pair-0", "configmap-pair-cm"):
        assert f"{objects}/{kept}.yaml" in packed
    assert packed["logs/pair-0.log"] == "starts with [removed]\n"
    assert [name for name in packed if "secret" in name] == []
    for text in packed.values():
        assert token not in text
        assert "planted word" not in text
        assert "YWJj" not in text
    missing = packed["not-included.txt"]
    assert "claim pair-models is not included: it does not exist" in missing
    # No operator runs, and this node has no metrics.
    assert len(missing.splitlines()) == 3, missing
