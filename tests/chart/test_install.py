"""The chart on a real API server: installed, upgraded, rolled back, uninstalled, and at work."""

import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from chart.conftest import TEAMS
from chart.helm import (
    CHART,
    INSTALL,
    NAMESPACE,
    RELEASE,
    ROOT,
    Helm,
    Object,
    environment,
    one,
    scope,
)
from chart.sets import SETS
from cluster import ControlPlane
from controlplane.operating import ACCOUNT, Operator, until

pytestmark = pytest.mark.controlplane

DEFINITION = "crd/speculativemodels.specdec.dev"
HERE = ("--namespace", NAMESPACE)
WAIT = ("--wait", "--timeout=120s")


@pytest.fixture
def release(live: Helm) -> Iterator[Helm]:
    """Helm; what a test leaves of the release is taken away, and the definition is kept."""
    yield live
    live("uninstall", RELEASE, *HERE, *WAIT, "--ignore-not-found")


def model(name: str, namespace: str) -> str:
    body = yaml.safe_load((ROOT / "manifests/samples/reference-draft-target.yaml").read_text())
    body["metadata"] = {"name": name, "namespace": namespace}
    return yaml.safe_dump(body)


def columns(plane: ControlPlane) -> list[str]:
    """What `kubectl get specm` prints: the part of the definition that the test changes."""
    version = plane.get(DEFINITION)["spec"]["versions"][0]
    return [column["name"] for column in version["additionalPrinterColumns"]]


def older(folder: Path) -> Path:
    """The chart of an earlier version, whose definition has no column Backend."""
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


def test_the_api_server_accepts_every_value_set(helm: Helm, plane: ControlPlane) -> None:
    """Strictly and under the restricted Pod Security, with the Prometheus operator's kinds."""
    bodies = []
    for number, (values, _) in enumerate(SETS.values()):
        # The definition is installed for real elsewhere.
        for body in helm.template(values | {"crds": {"install": False}}, release=f"set-{number}"):
            bodies.append(body)
            if body["kind"] == "Deployment":
                bodies.append(trial(body, number))
    text = yaml.safe_dump_all(bodies)
    flags = ("create", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
    assert len(plane.kubectl(*flags, stdin=text).splitlines()) == len(bodies)


def trial(deployment: Object, number: int) -> Object:
    """A pod of the Deployment: only a pod is refused, its template causes but a warning."""
    template = deployment["spec"]["template"]
    meta = {**template["metadata"], "name": f"trial-{number}", "namespace": NAMESPACE}
    # Its account is not there in a dry run, and is not what is tried.
    spec = {**template["spec"], "serviceAccountName": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def rights(plane: ControlPlane, namespace: str) -> list[list[str]]:
    """What the operator's account may do in a namespace, as the API server tells it."""
    account = f"--as=system:serviceaccount:{':'.join(ACCOUNT)}"
    told = plane.kubectl("auth", "can-i", "--list", "--no-headers", "-n", namespace, account)
    return sorted(re.split(r"\s{2,}", line.strip()) for line in told.splitlines())


def granted(plane: ControlPlane, objects: list[Object], namespace: str) -> list[list[str]]:
    """What the operator's account may do while these objects' roles are there."""
    roles = [o for o in objects if "Role" in o["kind"] or o["kind"] == "ServiceAccount"]
    text = yaml.safe_dump_all(roles)
    plane.kubectl("apply", "-f", "-", stdin=text)
    try:
        return rights(plane, namespace)
    finally:
        plane.kubectl("delete", "-f", "-", stdin=text)


def test_both_ways_to_install_give_the_same_rights(helm: Helm, plane: ControlPlane) -> None:
    nobody = rights(plane, "team-b")
    by_chart = granted(plane, helm.template(), "team-b")
    manifests = list(yaml.safe_load_all((INSTALL / "rbac.yaml").read_text()))
    assert by_chart == granted(plane, manifests, "team-b")
    assert len(by_chart) > len(nobody) + 10

    one_team = helm.template({"watchNamespaces": ["team-a"]})
    assert granted(plane, one_team, "team-b") == nobody, "rights where it was not told to watch"
    there = granted(plane, one_team, "team-a")
    beyond = [line[0] for line in by_chart if line not in there]
    assert beyond == ["customresourcedefinitions.apiextensions.k8s.io"]


@pytest.mark.parametrize("watched", [(), ("team-a",)], ids=["everywhere", "one-namespace"])
def test_the_operator_works_with_what_the_chart_gives_it(
    release: Helm, plane: ControlPlane, tmp_path: Path, watched: tuple[str, ...]
) -> None:
    # The admission plugin for owner references learns of a new definition within 30 s, and
    # refuses children until then: the operator tries again before anything else would move it.
    name = f"work-{len(watched)}"
    values = {"watchNamespaces": list(watched)}
    release("install", RELEASE, CHART, *HERE, *WAIT, values=values)
    objects = release.template(values)
    variables = {k: v for k, v in environment(objects).items() if k.startswith("SPECDEC_")}
    account = plane.service_account(*ACCOUNT)
    with Operator(account, tmp_path / "log", scope=scope(objects), **variables) as operator:
        for team in TEAMS:
            plane.kubectl("apply", "-f", "-", stdin=model(name, team))
        seen = watched or TEAMS
        for team in seen:
            looked = functools.partial(looked_at, plane, team, name)
            until(looked, lambda: f"a status: {operator.words()}")
            assert plane.get("pvc", f"{name}-models", "-n", team)
        for team in set(TEAMS) - set(seen):
            assert not looked_at(plane, team, name)
        told = operator.log.read_text()
        # The words in which the API server refuses what no role allows.
        assert not re.search(r"cannot \w+ resource", told)
        assert "(Rejected)" not in told
        require_hook(one(objects, "Pod"), operator.metrics_url)


def looked_at(plane: ControlPlane, namespace: str, name: str) -> bool:
    status = plane.get("specm", name, "-n", namespace).get("status", {})
    reasons = {c["type"]: c["reason"] for c in status.get("conditions", [])}
    return reasons.get("StorageReady") in ("Bound", "ClaimPending")


def require_hook(pod: Object, url: str) -> None:
    """The program of `helm test` says yes to a running operator, and no to anything else."""
    (container,) = pod["spec"]["containers"]
    program, address = container["args"]
    assert address == f"http://{RELEASE}.{NAMESPACE}.svc:9090/metrics"
    argv = [sys.executable, "-c", program]
    done = subprocess.run([*argv, url], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:17]) == (0, "the operator runs"), done.stderr
    closed = subprocess.run([*argv, "http://127.0.0.1:9/"], capture_output=True, check=False)
    assert closed.returncode != 0


def test_the_notes_say_the_next_command(live: Helm) -> None:
    values = {"watchNamespaces": ["team-a"], "crds": {"install": False}}
    told = live("install", "mine", CHART, "--dry-run=client", "--namespace=ops", values=values)
    notes = told.split("NOTES:")[1]
    assert "kubectl -n ops rollout status deployment/mine-specdec-operator" in notes
    assert "kubectl -n team-a apply -f manifests/samples/reference-draft-target.yaml" in notes
    assert "kubectl apply --server-side -f crds/speculativemodels.yaml" in notes
    for path in re.findall(r"-f (\S+)", notes):
        assert (ROOT / path).exists(), path


def test_models_outlive_upgrade_rollback_and_uninstall(
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

    # It takes the kept definition over again; and when told so, takes it along in the end.
    release("install", RELEASE, CHART, *HERE, *WAIT, values={"crds": {"keep": False}})
    assert plane.get("specm", "kept", "-n", "team-a")["metadata"]["uid"] == uid
    release("uninstall", RELEASE, *HERE, *WAIT)
    until(
        lambda: not plane.kubectl("get", DEFINITION, "--ignore-not-found").strip(),
        "a definition that went with the release",
    )
