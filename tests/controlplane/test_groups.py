"""A service on two nodes, with the real LeaderWorkerSet manager and the operator's permissions."""

import base64
import json
from collections.abc import Iterator

import pytest
import yaml

from cluster import ControlPlane, objects
from cluster.state import Options
from controlplane import lws
from controlplane.operating import Lab, Object, Operator, until
from controlplane.pipeline import FACTS, built, claim, published, unwritten
from specdec.api import names

pytestmark = pytest.mark.controlplane

NAME = "big"
GROUP = f"{NAME}-group"
KIND = "leaderworkerset"
PRODUCT = Options().gpu_product
PODS = f"{names.MODEL}={NAME},{names.COMPONENT} in (server,worker)"


@pytest.fixture(scope="module")
def room(installed: ControlPlane) -> Iterator[ControlPlane]:
    """Add two nodes, so that two groups fit."""
    nodes = [objects.gpu_node(f"group-{number}", Options()) for number in range(2)]
    installed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(nodes))
    yield installed
    installed.kubectl("delete", "node", *(node["metadata"]["name"] for node in nodes))


@pytest.fixture(scope="module")
def manager(
    operator: Operator, room: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    with lws.manager(room, tmp_path_factory.mktemp("lws")):
        yield
    # kopf may exit when a watched kind is deleted; the kubelet would restart it.
    operator.stop()
    operator.start()


@pytest.fixture
def grouped(operator: Operator, room: ControlPlane, manager: None) -> Iterator[Lab]:
    with Lab(room, operator) as lab:
        yield lab


def resource(nodes: int = 2, tensor: int = 8, pipeline: int = 2) -> Object:
    """Return a target-only resource that spans nodes of eight GPUs."""
    return {
        "apiVersion": "specdec.dev/v1alpha1",
        "kind": "SpeculativeModel",
        "metadata": {"name": NAME},
        "spec": {
            "runtime": {"backend": "TensorRT"},
            "gpu": {"product": PRODUCT},
            "target": {
                "source": {"pvc": {"claimName": "source", "path": "target"}},
                "parallelism": {"tensor": tensor, "pipeline": pipeline},
            },
            "speculation": {"method": "None"},
            "storage": {"size": "1Gi", "accessMode": "ReadWriteMany"},
            "serving": {"nodesPerReplica": nodes, "drain": {"timeoutSeconds": 5}},
        },
    }


def serve(lab: Lab) -> Object:
    """Apply the resource and end its Jobs until it is Ready; return it."""
    lab.apply(claim("source"), resource())
    fetched(lab)
    lab.wait(NAME, "EnginesReady", "False", "Building")
    built(lab, lab.job("engine"))
    published(lab)
    lab.wait(NAME)
    body = lab.get("specm", NAME)
    assert body is not None
    return body


def fetched(lab: Lab) -> None:
    facts = {**FACTS, "heads": 16, "kvHeads": 16}
    target = {"digest": names.digest("t"), "revision": "", "bytes": 1000, "facts": facts}
    result = {"models": {"target": target}, "engines": []}
    lab.finish(lab.job("fetch"), result)


def pods(lab: Lab) -> dict[str, Object]:
    """Return the pods of all groups that are not being deleted, by name."""
    listed = lab.all("pods", PODS)
    return {p["metadata"]["name"]: p for p in listed if "deletionTimestamp" not in p["metadata"]}


def test_missing_group_controller_is_reported_with_its_fix(
    operator: Operator, room: ControlPlane
) -> None:
    with Lab(room, operator) as lab:
        lab.apply(claim("source"), resource())
        fetched(lab)
        lab.wait(NAME, "EnginesReady", "False", "Building")
        built(lab, lab.job("engine"))
        published(lab)
        missing = lab.wait(NAME, "Available", "False", "LeaderWorkerSetMissing")
        assert "install the LeaderWorkerSet controller" in missing["message"]


def test_group_serves_scales_suspends_and_is_deleted(grouped: Lab) -> None:
    lab = grouped
    body = serve(lab)
    assert "1 of 1 groups of 2 pods" in lab.condition(NAME, "Available")["message"]
    assert body["status"]["plan"]["nodesPerReplica"] == 2
    assert lab.get("deployment", NAME) is None
    members = pods(lab)
    assert sorted(members) == [f"{GROUP}-0", f"{GROUP}-0-1"]
    nodes = {pod["spec"]["nodeName"] for pod in members.values()}
    assert len(nodes) == 2, "both pods of a group on one node"
    for pod in members.values():
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
        variables = {e["name"]: e.get("value") for e in container["env"]}
        assert variables["LWS_LEADER_ADDRESS"] == f"{GROUP}-0.{GROUP}.{lab.namespace}"
        assert ("readinessProbe" in container) == pod["metadata"]["name"].endswith("-group-0")
    service = lab.get("service", NAME)
    assert service is not None
    chosen = lab.all("pods", ",".join(f"{k}={v}" for k, v in service["spec"]["selector"].items()))
    assert [pod["metadata"]["name"] for pod in chosen] == [f"{GROUP}-0"]

    # The operator generates the Secret once: another reconcile writes nothing.
    secret = lab.get("secret", GROUP)
    assert secret is not None
    unwritten(lab, NAME)
    (key,) = secret["data"].values()
    public = json.dumps(lab.get("specm", NAME)) + lab.operator.log.read_text("utf-8")
    assert key not in public
    assert base64.b64decode(key).decode() not in public

    lab.kubectl("scale", "specm", NAME, "--replicas=2")
    until(
        lambda: "2 of 2" in lab.condition(NAME, "Available")["message"], lambda: lab.describe(NAME)
    )
    assert len(pods(lab)) == 4

    lab.patch("specm", NAME, {"spec": {"suspend": True}})
    lab.wait(NAME, "Ready", "False", "Suspended")
    until(lambda: not pods(lab), lambda: f"no pod: {list(pods(lab))}")
    assert lab.get(KIND, GROUP) is not None

    lab.kubectl("delete", "specm", NAME, "--wait=true")
    kinds = f"{KIND},configmap,secret,service,statefulset"

    def left() -> list[Object]:
        listed = lab.all(kinds)
        return [o for o in listed if o["metadata"]["name"].startswith(NAME)]

    until(lambda: not left(), lambda: f"nothing left of {left()}")


def test_scaling_before_a_new_repository_keeps_the_group_template(grouped: Lab) -> None:
    lab = grouped
    serve(lab)
    before, leader = group(lab), pods(lab)[f"{GROUP}-0"]
    lab.patch("specm", NAME, {"spec": {"serving": {"streaming": False}}})
    lab.wait(NAME, "RepositoryReady", "False")
    lab.patch("specm", NAME, {"spec": {"serving": {"replicas": 2}}})
    until(lambda: group(lab)["spec"]["replicas"] == 2, lambda: lab.describe(NAME))
    scaled = group(lab)
    assert scaled["spec"]["leaderWorkerTemplate"] == before["spec"]["leaderWorkerTemplate"]

    # The spec is again that of the serving revision: its template equals the live one.
    lab.patch("specm", NAME, {"spec": {"serving": {"streaming": True}}})
    until(
        lambda: "2 of 2" in lab.condition(NAME, "Available")["message"], lambda: lab.describe(NAME)
    )
    assert group(lab)["spec"] == scaled["spec"]
    assert pods(lab)[f"{GROUP}-0"]["metadata"]["uid"] == leader["metadata"]["uid"]


def group(lab: Lab) -> Object:
    body = lab.get(KIND, GROUP)
    assert body is not None
    return body


def test_new_repository_replaces_the_group(grouped: Lab) -> None:
    lab = grouped
    before = serve(lab)
    publish = lab.job("publish")
    lab.patch("specm", NAME, {"spec": {"serving": {"streaming": False}}})
    published(lab, (publish,))

    def moved() -> bool:
        body = lab.get("specm", NAME) or {}
        revision = body["status"]["serving"]["revision"]
        return bool(revision != before["status"]["serving"]["revision"])

    until(moved, lambda: lab.describe(NAME))
    new = (lab.get("specm", NAME) or {})["status"]["serving"]["revision"]

    def revisions() -> set[str]:
        return {p["metadata"]["labels"][names.REPOSITORY] for p in pods(lab).values()}

    # The status names the new revision before the group's controller has replaced the pods.
    until(lambda: revisions() == {new[:16]}, lambda: f"{revisions()}, not {new[:16]}")


def test_service_moves_from_two_nodes_to_one(grouped: Lab) -> None:
    lab = grouped
    serve(lab)
    engine, publish = lab.job("engine"), lab.job("publish")
    lab.apply(resource(1, 8, 1))
    waiting = lab.wait(NAME, "Ready", "False", "Building")
    assert "previous revision still serves" in waiting["message"]
    assert lab.get(KIND, GROUP) is not None
    built(lab, lab.job("engine", (engine,)))
    published(lab, (publish,))
    until(lambda: lab.missing(KIND, GROUP), lambda: lab.describe(NAME))
    lab.wait(NAME)
    assert lab.get("deployment", NAME) is not None
    until(lambda: lab.missing("configmap", GROUP), lambda: lab.describe(NAME))
