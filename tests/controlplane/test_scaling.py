"""kubectl scale and an autoscaler set the replicas, and the operator reverts no change."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from cluster import ControlPlane
from cluster.api import MERGE_PATCH, Api
from controlplane import definitions
from controlplane.audit import writers
from controlplane.operating import Lab, Object, Operator, until
from controlplane.pipeline import at_rest, fetched, published, resource, serve, unwritten
from controlplane.specm import Resources
from specdec.api.model import API_VERSION, PLURAL

pytestmark = pytest.mark.controlplane

PODS = {"type": "Pods", "name": "queue", "target": "2500m"}
QUERY = {"type": "Prometheus", "query": "sum(queue)", "target": "2"}
BY_KEDA = {
    "driver": "KEDA",
    "minReplicas": 0,
    "maxReplicas": 3,
    "metrics": [QUERY],
    "prometheusAddress": "http://prometheus:9090",
}
# The operator's field manager.
OPERATOR = "specdec"


@pytest.fixture(scope="module")
def kinds(operator: Operator, installed: ControlPlane) -> Iterator[None]:
    with definitions.installed(installed):
        yield
    # kopf may exit when a watched kind is deleted; the kubelet would restart it.
    operator.stop()
    operator.start()


@pytest.fixture
def resources(lab: Lab) -> Iterator[Resources]:
    resources = Resources(lab.plane.kubeconfig, lab.namespace)
    yield resources
    resources.close()


def serving(**scaling: Any) -> Object:
    """Return the serving block of a pair with an autoscaler."""
    return {"drain": {"timeoutSeconds": 5}, "scaling": {"metrics": [PODS], **scaling}}


def replicas(lab: Lab, kind: str = "deployment") -> int:
    body = lab.get(kind, "pair")
    assert body is not None
    spec = body["spec"] if kind == "deployment" else body["spec"]["serving"]
    return int(spec["replicas"])


def followed(lab: Lab, count: int) -> None:
    """Wait until the Deployment has `count` replicas."""
    until(lambda: replicas(lab) == count, lambda: f"{count} replicas: {lab.describe('pair')}")


def touch(lab: Lab, api: Api, name: str, number: int) -> None:
    """Change an annotation of a resource, so that the operator reconciles it."""
    path = f"/apis/{API_VERSION}/namespaces/{lab.namespace}/{PLURAL}/{name}"
    change = {"metadata": {"annotations": {"test/touched": str(number)}}}
    api.call("PATCH", path, change, MERGE_PATCH)


def test_scale_changes_under_load_are_applied_and_never_reverted(
    lab: Lab, resources: Resources
) -> None:
    """The resource has an autoscaler, and another resource changes as often."""
    before = serve(lab, "pair", serving=serving(maxReplicas=8))
    lab.apply(resource("busy", storage={"existingClaim": "nowhere"}))
    api = Api(lab.plane.kubeconfig)
    written = [1]
    for number in range(1, 101):
        count = 1 + (7 * number) % 5
        resources.scale("pair", count)
        touch(lab, api, "busy", number)
        written.append(count)
        if number % 25 == 0:
            followed(lab, written[-1])
    lab.wait("pair")
    at_rest(lab)
    assert replicas(lab) == written[-1]
    after = resources.get("pair")
    changes = sum(a != b for a, b in pairwise(written))
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + changes
    assert OPERATOR not in writers(after)
    assert after["spec"]["serving"]["scaling"] == before["spec"]["serving"]["scaling"]


def test_deployment_follows_the_replicas_set_by_an_autoscaler(
    lab: Lab, resources: Resources
) -> None:
    serve(lab, "pair", serving=serving(minReplicas=2, maxReplicas=3))
    until(lambda: replicas(lab, "specm") == 2, "the autoscaler's least")
    until(lambda: replicas(lab) == 2, "a Deployment that follows")
    assert OPERATOR not in writers(resources.get("pair"))
    # The condition reports that this cluster serves no metrics API.
    missing = lab.wait("pair", "ScalingReady", "False", "MetricMissing")
    assert "queue" in missing["message"]
    lab.wait("pair")
    unwritten(lab, "pair")

    lab.kubectl("delete", "hpa", "pair")
    until(lambda: lab.get("hpa", "pair"), "the autoscaler again")
    lab.patch("specm", "pair", {"spec": {"suspend": True}})
    until(lambda: lab.missing("hpa", "pair"), "no autoscaler of a suspended resource")


def test_missing_keda_is_reported_with_its_fix(lab: Lab) -> None:
    serve(lab, "pair", serving={"scaling": BY_KEDA})
    missing = lab.wait("pair", "ScalingReady", "False", "KedaMissing")
    assert "install KEDA" in missing["message"]
    assert lab.condition("pair")["status"] == "True"


def set_status(lab: Lab, kind: str, status: Object) -> None:
    """Write the status of an object, as its controller would."""
    argv = ("patch", kind, "pair", "--subresource=status", "--type=merge", "-p")
    lab.kubectl(*argv, json.dumps({"status": status}))


# The status of a route that a Gateway accepts.
STAMP = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Any", "message": "so it is"}
TAKEN = {
    "controllerName": "example.com/one",
    "parentRef": {"name": "public"},
    "conditions": [{"type": "Accepted", "status": "True", **STAMP}],
}


def test_status_of_keda_and_gateway_objects_is_reported(kinds: None, lab: Lab) -> None:
    gateway = {"parentRefs": [{"name": "public"}], "hostnames": ["llm.example.com"]}
    serve(lab, "pair", serving={"scaling": BY_KEDA}, networking={"gateway": gateway})
    until(lambda: lab.get("scaledobject", "pair"), lambda: lab.describe("pair"))
    until(lambda: lab.get("httproute", "pair"), lambda: lab.describe("pair"))
    lab.wait("pair", "ScalingReady", "Unknown", "ScalerStarting")
    lab.wait("pair", "RouteReady", "Unknown", "RoutePending")
    ready = {"type": "Ready", "status": "True", "message": "as defined"}
    set_status(lab, "scaledobject", {"conditions": [ready]})
    lab.wait("pair", "ScalingReady", "True", "ScalerActive")
    set_status(lab, "httproute", {"parents": [TAKEN]})
    lab.wait("pair", "RouteReady", "True", "RouteAccepted")

    unwritten(lab, "pair")
    lab.patch("specm", "pair", {"spec": {"serving": {"scaling": None}, "networking": None}})
    until(lambda: lab.missing("scaledobject", "pair"), "no ScaledObject")
    until(lambda: lab.missing("httproute", "pair"), "no HTTPRoute")
    until(lambda: not lab.condition("pair", "ScalingReady"), "no condition ScalingReady")


def weights(lab: Lab) -> dict[str, int]:
    """Return the weights of the route, by Service."""
    route = lab.get("httproute", "pair") or {"spec": {"rules": [{"backendRefs": []}]}}
    (rule,) = route["spec"]["rules"]
    return {backend["name"]: backend["weight"] for backend in rule["backendRefs"]}


def test_traffic_split_follows_the_state_of_the_other_resource(kinds: None, lab: Lab) -> None:
    shared = {"existingClaim": "pair"}
    serve(lab, "next", storage=shared)
    jobs = {kind: tuple(lab.jobs(kind)) for kind in ("fetch", "publish")}
    split = {"modelRef": {"name": "next"}, "percent": 25}
    gateway = {"parentRefs": [{"name": "public"}], "split": split}
    off = {"mode": "Disabled"}
    lab.apply(resource("pair", storage=shared, networking={"gateway": gateway}, verification=off))
    fetched(lab, jobs["fetch"])
    published(lab, jobs["publish"])
    parts, alone = {"pair": 75, "next": 25}, {"pair": 1}
    until(lambda: weights(lab) == parts, lambda: f"{weights(lab)}: {lab.describe('pair')}")
    # From here on a change of the other resource triggers a reconcile of this route.
    set_status(lab, "httproute", {"parents": [TAKEN]})
    lab.wait("pair", "RouteReady", "True", "RouteAccepted")

    lab.patch("specm", "next", {"spec": {"suspend": True}})
    until(lambda: weights(lab) == alone, lambda: f"{weights(lab)}: {lab.describe('pair')}")
    lab.wait("pair", "RouteReady", "Unknown", "SplitWaits")
    lab.patch("specm", "next", {"spec": {"suspend": False}})
    until(lambda: weights(lab) == parts, lambda: f"{weights(lab)}: {lab.describe('next')}")
    lab.wait("pair", "RouteReady", "True", "RouteAccepted")
    lab.kubectl("delete", "specm", "next", "--wait=true")
    until(lambda: weights(lab) == alone, lambda: f"{weights(lab)}: {lab.describe('pair')}")
    lab.wait("pair", "RouteReady", "Unknown", "SplitTargetMissing")
