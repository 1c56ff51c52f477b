"""The chart of a SpeculativeModel: rendering, refusals, and installation on a real API server."""

import re
from pathlib import Path

import pytest
import yaml

from chart.helm import MODEL_CHART, ROOT, Helm, HelmError, Object
from chart.touring import define_own
from cluster import ClusterError, ControlPlane, binaries
from specdec import __version__
from support.quickstarts import typed

GIVEN = MODEL_CHART / "ci" / "reference-values.yaml"
SAMPLES = ("reference-draft-target", "tensorrt-two-servers", "tensorrt-eagle", "reference-tls")
VERSION = f"--kube-version={binaries.KUBERNETES}"
HERE = ("--namespace", "models")
SPEC: Object = {field: {} for field in ("runtime", "target", "speculation", "storage")}
# Name of the case -> (values, the field's name in Helm's error message)
REFUSED: dict[str, tuple[Object, str]] = {
    "no-values": ({}, "storage"),
    "typo": ({"spec": {**SPEC, "servin": {}}}, "servin"),
    "typo-outside": ({"spec": SPEC, "specs": {}}, "specs"),
    "long-name": ({"spec": SPEC, "name": "a" * 41}, "name"),
    "dotted-name": ({"spec": SPEC, "name": "llama-3.1"}, "name"),
    "label": ({"spec": SPEC, "labels": {"cost": 42}}, "labels"),
}


def read(path: Path) -> Object:
    body: Object = yaml.safe_load(path.read_text())
    return body


def rendered(helm: Helm, values: Object) -> Object:
    argv = ("template", "tiny", MODEL_CHART, *HERE, VERSION)
    body: Object = yaml.safe_load(helm(*argv, values=values))
    return body


def test_model_chart_is_small_and_passes_lint(helm: Helm) -> None:
    files = [path for path in MODEL_CHART.rglob("*") if path.is_file()]
    assert sum(len(path.read_text().splitlines()) for path in files) < 100
    output = helm("lint", "--strict", VERSION, MODEL_CHART, f"--values={GIVEN}")
    assert "0 chart(s) failed" in output
    chart = read(MODEL_CHART / "Chart.yaml")
    assert chart["version"] == chart["appVersion"] == __version__


def test_schema_has_the_fields_of_a_spec() -> None:
    schema = read(MODEL_CHART / "values.schema.json")["properties"]["spec"]
    crd = read(ROOT / "crds" / "speculativemodels.yaml")
    (version,) = crd["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert schema["properties"] == {k: {"type": v["type"]} for k, v in spec["properties"].items()}
    assert schema["required"] == spec["required"]


@pytest.mark.parametrize("name", SAMPLES)
def test_spec_is_rendered_unchanged(helm: Helm, name: str) -> None:
    spec = read(ROOT / "manifests" / "samples" / f"{name}.yaml")["spec"]
    # A number above a million: as a floating point number, Helm would write it with an exponent.
    spec["target"]["limits"]["maxNumTokens"] = 4194304
    marks = {"labels": {"team": "a"}, "annotations": {"example.com/note": "yes"}}
    body = rendered(helm, {"name": "own", "spec": spec, **marks})
    assert body["spec"] == spec
    assert body["metadata"]["name"] == "own"
    assert body["metadata"]["labels"]["team"] == "a"
    assert body["metadata"]["annotations"] == marks["annotations"]


@pytest.mark.parametrize("name", REFUSED)
def test_schema_error_names_the_field(helm: Helm, name: str) -> None:
    values, field = REFUSED[name]
    with pytest.raises(HelmError, match="don't meet the specifications of the schema") as refused:
        rendered(helm, values)
    assert field in str(refused.value)


@pytest.fixture
def fresh(live: Helm, plane: ControlPlane, tmp_path: Path) -> Helm:
    """Return Helm with no cache of a cluster without the CRD."""
    define_own(live, plane)
    return Helm(tmp_path, plane.kubeconfig)


def documented(folder: Path) -> tuple[list[str | Path], Object]:
    """Return the arguments of the guide's helm command, and the values of the guide."""
    guide = ROOT / "docs" / "gitops.md"
    (text,) = re.findall(r"```yaml\n# model.yaml\n(.*?)```", guide.read_text(), re.DOTALL)
    file = folder / "model.yaml"
    file.write_text(text)
    (command,) = [argv for argv in typed(guide) if argv[0] == "helm"]
    places = {"charts/specdec-model": MODEL_CHART, "model.yaml": file}
    return [places.get(word, word) for word in command[1:]], yaml.safe_load(text)


@pytest.mark.controlplane
def test_command_of_the_guide_installs_and_release_is_upgraded_and_removed(
    fresh: Helm, plane: ControlPlane, tmp_path: Path
) -> None:
    command, values = documented(tmp_path)
    output = fresh(*command)
    assert "kubectl -n models wait specm/code --for=condition=Ready" in output
    first = plane.get("specm", "code", *HERE)
    assert first["spec"]["speculation"]["draftTokens"] == 4

    values["spec"]["speculation"]["draftTokens"] = 6
    fresh("upgrade", "code", MODEL_CHART, *HERE, values=values)
    second = plane.get("specm", "code", *HERE)
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert second["spec"]["speculation"]["draftTokens"] == 6

    other = {**values, "spec": {**values["spec"], "storage": {"existingClaim": "mine"}}}
    with pytest.raises(HelmError, match=r"storage\.existingClaim cannot change"):
        fresh("upgrade", "code", MODEL_CHART, *HERE, values=other)
    # Helm lets the API server drop unknown nested fields; strict validation refuses them.
    other = {**values, "spec": {**values["spec"], "serving": {"replica": 2}}}
    text = yaml.safe_dump(rendered(fresh, other))
    with pytest.raises(ClusterError, match=r'unknown field "spec\.serving\.replica"'):
        plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    fresh("uninstall", "code", *HERE)
    assert plane.get("specm", *HERE)["items"] == []
