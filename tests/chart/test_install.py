"""The chart on a real API server: installed, upgraded, rolled back and uninstalled."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.helm import (
    CHART,
    INSTALL,
    NAMESPACE,
    NAMESPACED,
    RELEASE,
    ROOT,
    Helm,
    Object,
    kustomized,
)
from chart.sets import SETS
from chart.touring import HERE, USER, WAIT
from cluster import ControlPlane
from controlplane.operating import until

pytestmark = pytest.mark.controlplane

DEFINITION = "crd/speculativemodels.specdec.dev"


def model(name: str, namespace: str) -> str:
    body = yaml.safe_load((ROOT / "manifests/samples/reference-draft-target.yaml").read_text())
    body["metadata"] = {"name": name, "namespace": namespace}
    return yaml.safe_dump(body)


def columns(plane: ControlPlane) -> list[str]:
    """Return the columns of `kubectl get specm`: the part of the CRD that a test changes."""
    version = plane.get(DEFINITION)["spec"]["versions"][0]
    return [column["name"] for column in version["additionalPrinterColumns"]]


def older(folder: Path) -> Path:
    """Make a chart of an earlier version, whose CRD lacks the column Backend."""
    chart = folder / "specdec-operator"
    shutil.copytree(CHART, chart)
    crd = yaml.safe_load((chart / "files" / "crd.yaml").read_text())
    version = crd["spec"]["versions"][0]
    version["additionalPrinterColumns"] = [
        column for column in version["additionalPrinterColumns"] if column["name"] != "Backend"
    ]
    (chart / "files" / "crd.yaml").write_text(yaml.safe_dump(crd))
    about = yaml.safe_load((chart / "Chart.yaml").read_text()) | {"version": "0.0.9"}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about))
    return chart


def test_api_server_accepts_every_value_set(helm: Helm, plane: ControlPlane) -> None:
    """Validation is strict, with restricted Pod Security and the Prometheus operator's kinds."""
    bodies = []
    for number, (values, _) in enumerate(SETS.values()):
        # Another test installs the CRD.
        for body in helm.template(values | {"crds": {"install": False}}, release=f"set-{number}"):
            bodies.append(body)
            if body["kind"] == "Deployment":
                bodies.append(trial(body, number))
    text = yaml.safe_dump_all(bodies)
    flags = ("create", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
    assert len(plane.kubectl(*flags, stdin=text).splitlines()) == len(bodies)


def trial(deployment: Object, number: int) -> Object:
    """Return the Deployment's pod: Pod Security refuses pods, but only warns about templates."""
    template = deployment["spec"]["template"]
    meta = {**template["metadata"], "name": f"trial-{number}", "namespace": NAMESPACE}
    # A dry run does not create the service account, which this test does not check.
    spec = {**template["spec"], "serviceAccountName": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def rights(plane: ControlPlane, namespace: str) -> list[list[str]]:
    """Return the permissions of the operator's account that the API server reports."""
    argv = ("auth", "can-i", "--list", "--no-headers", "-n", namespace, f"--as={USER}")
    rows = plane.kubectl(*argv)
    return sorted(re.split(r"\s{2,}", line.strip()) for line in rows.splitlines())


def rights_by(plane: ControlPlane, objects: list[Object], namespace: str) -> list[list[str]]:
    """Return the permissions of the operator's account while the roles in `objects` exist."""
    roles = [o for o in objects if "Role" in o["kind"] or o["kind"] == "ServiceAccount"]
    text = yaml.safe_dump_all(roles)
    plane.kubectl("apply", "-f", "-", stdin=text)
    try:
        return rights(plane, namespace)
    finally:
        plane.kubectl("delete", "-f", "-", stdin=text)


def test_chart_and_manifests_give_the_same_permissions(helm: Helm, plane: ControlPlane) -> None:
    without = rights(plane, "team-b")
    by_chart = rights_by(plane, helm.template(), "team-b")
    manifests = list(yaml.safe_load_all((INSTALL / "rbac.yaml").read_text()))
    assert by_chart == rights_by(plane, manifests, "team-b")
    assert len(by_chart) > len(without) + 10

    one_team = helm.template({"watchNamespaces": ["team-a"]})
    assert rights_by(plane, one_team, "team-b") == without, (
        "rights in a namespace that is not watched"
    )
    there = rights_by(plane, one_team, "team-a")
    by_manifests = kustomized(NAMESPACED)
    assert rights_by(plane, by_manifests, "team-a") == there
    assert rights_by(plane, by_manifests, "team-b") == without
    beyond = [line[0] for line in by_chart if line not in there]
    assert beyond == ["customresourcedefinitions.apiextensions.k8s.io"]


def test_notes_have_the_next_commands(live: Helm) -> None:
    values = {"watchNamespaces": ["team-a"], "crds": {"install": False}}
    output = live("install", "mine", CHART, "--dry-run=client", "--namespace=ops", values=values)
    notes = output.split("NOTES:")[1]
    assert "kubectl -n ops rollout status deployment/mine-specdec-operator" in notes
    assert "kubectl -n team-a apply -f manifests/samples/reference-draft-target.yaml" in notes
    assert "kubectl apply --server-side -f crds/speculativemodels.yaml" in notes
    for path in re.findall(r"-f (\S+)", notes):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, False),
        ({"metrics": {"podMonitor": {"enabled": True}}}, True),
        (
            {
                "metrics": {"podMonitor": {"enabled": True}},
                "networkPolicy": {"metricsFrom": [{"namespaceSelector": {}}]},
            },
            False,
        ),
    ],
)
def test_notes_name_the_peer_that_monitoring_needs(
    live: Helm, values: dict[str, Any], named: bool
) -> None:
    # Helm checks the owner of the CRD, which may be the release of another test.
    values = {**values, "crds": {"install": False}}
    text = live("install", "mine", CHART, "--dry-run=client", "--namespace=ops", values=values)
    notes = text.split("NOTES:")[1]
    assert ("Only pods of ops reach the metrics" in notes) == named


def test_models_survive_upgrade_rollback_and_uninstall(
    release: Helm, plane: ControlPlane, tmp_path: Path
) -> None:
    plane.kubectl("delete", DEFINITION, "--ignore-not-found")
    release("install", RELEASE, older(tmp_path), *HERE, *WAIT)
    plane.kubectl("apply", "-f", "-", stdin=model("kept", "team-a"))
    uid = plane.get("specm", "kept", "-n", "team-a")["metadata"]["uid"]
    assert "Backend" not in columns(plane)

    release("upgrade", RELEASE, CHART, *HERE, *WAIT)
    assert "Backend" in columns(plane), "an upgrade must bring the definition's changes"
    release("rollback", RELEASE, "1", *HERE, *WAIT)
    assert "Backend" not in columns(plane)

    release("uninstall", RELEASE, *HERE, *WAIT)
    assert plane.get("specm", "kept", "-n", "team-a")["metadata"]["uid"] == uid
    ours = ("-A", "-l", f"app.kubernetes.io/instance={RELEASE}")
    kinds = "deployment,service,serviceaccount,networkpolicy,clusterrole,clusterrolebinding"
    assert plane.get(kinds, *ours)["items"] == []

    # The new release adopts the kept CRD; with keep=False, its uninstallation deletes the CRD.
    release("install", RELEASE, CHART, *HERE, *WAIT, values={"crds": {"keep": False}})
    assert plane.get("specm", "kept", "-n", "team-a")["metadata"]["uid"] == uid
    release("uninstall", RELEASE, *HERE, *WAIT)
    until(
        lambda: not plane.kubectl("get", DEFINITION, "--ignore-not-found").strip(),
        "a definition that went with the release",
    )
