"""Optional objects: the operator applies, remembers, deletes and reports them."""

from typing import Any

import pytest

from specdec.api import names
from support.simulated_cluster import World, fetched, resource, settled

METRIC = {"type": "Pods", "name": "queue", "target": "2"}
GATEWAYS = {"gateway": {"parentRefs": [{"name": "a"}, {"name": "b"}]}}
INGRESS = {"ingress": {"hosts": ["llm.example.com"]}}
QUERY = {"type": "Prometheus", "query": "sum(queue)", "target": "2"}
BY_HPA: dict[str, Any] = {"maxReplicas": 4, "metrics": [METRIC]}
BY_KEDA: dict[str, Any] = {
    "driver": "KEDA",
    "maxReplicas": 4,
    "metrics": [QUERY],
    "prometheusAddress": "http://prometheus:9090",
}
HPA, KEDA = ("HorizontalPodAutoscaler", "pair"), ("ScaledObject", "pair")


def served(**serving: Any) -> World:
    return settled(resource(serving=serving))


def remembered(world: World) -> str:
    """Return the kinds of optional objects in the Service's annotation."""
    annotations = world.services["pair"]["metadata"].get("annotations", {})
    return str(annotations.get(names.OPTIONAL_KINDS_ANNOTATION, ""))


def scaling_ready(*conditions: dict[str, str], kind: tuple[str, str] = HPA, **scaling: Any) -> Any:
    """Return the condition ScalingReady for an autoscaler with these conditions."""
    world = served(scaling={**(BY_HPA if kind == HPA else BY_KEDA), **scaling})
    world.optional_objects[kind]["status"] = {"conditions": list(conditions)}
    world.step()
    ready = world.condition("Ready")
    assert ready["status"] == "True", "an autoscaler held the service back"
    return world.condition("ScalingReady")


def test_resource_without_optional_objects_has_no_annotation() -> None:
    world = served()
    assert world.optional_objects == {}
    assert remembered(world) == ""
    assert "ScalingReady" not in {c["type"] for c in world.cr["status"]["conditions"]}


def test_an_autoscaler_points_at_the_resource_and_never_at_its_deployment() -> None:
    for scaling, key in ((BY_HPA, HPA), (BY_KEDA, KEDA)):
        spec = served(scaling=scaling).optional_objects[key]["spec"]
        expected = {
            "apiVersion": "specdec.dev/v1alpha1",
            "kind": "SpeculativeModel",
            "name": "pair",
        }
        assert spec["scaleTargetRef"] == expected


@pytest.mark.parametrize("replicas", [0, 1, 3])
def test_deployment_follows_the_replicas_of_the_resource(replicas: int) -> None:
    world = served(scaling=BY_HPA)
    world.spec["serving"]["replicas"] = replicas
    world.step()
    assert world.deployment is not None
    assert world.deployment["spec"]["replicas"] == replicas


def test_service_remembers_the_kind_before_the_object_exists() -> None:
    world = World(resource(serving={"scaling": BY_HPA}))
    kinds: list[str] = []
    while HPA not in world.optional_objects:
        world.step()
        kinds += [body["kind"] for body in (world.last.apply if world.last else ())]
        if world.claim is None:
            world.bind()
        for name, job in list(world.jobs.items()):
            if "status" not in job:
                component = job["metadata"]["labels"][names.COMPONENT]
                world.finish(name, fetched() if component == "fetch" else {})
    assert kinds.index("Service") < kinds.index("HorizontalPodAutoscaler")
    assert remembered(world) == "HorizontalPodAutoscaler"


def test_autoscaler_of_another_driver_replaces_the_first() -> None:
    world = served(scaling=BY_HPA)
    world.spec["serving"]["scaling"] = BY_KEDA
    world.step()
    assert set(world.optional_objects) == {KEDA}
    assert remembered(world) == "HorizontalPodAutoscaler,ScaledObject"
    world.step()
    assert remembered(world) == "ScaledObject"


@pytest.mark.parametrize("change", [{"serving": {}}, {"suspend": True}])
def test_autoscaler_is_deleted_when_the_spec_needs_none(change: dict[str, Any]) -> None:
    world = served(scaling=BY_HPA)
    world.spec.update(change)
    world.step()
    assert world.optional_objects == {}
    assert "ScalingReady" not in {c["type"] for c in world.cr["status"]["conditions"]}
    world.step()
    assert remembered(world) == ""


def test_autoscaler_stays_while_another_revision_is_built() -> None:
    world = served(scaling=BY_HPA)
    world.spec["target"]["limits"]["maxSeqLen"] = 384
    world.spec["serving"]["scaling"] = {**BY_HPA, "maxReplicas": 6}
    world.step()
    assert world.condition("Ready")["reason"] == "Queued"
    assert world.optional_objects[HPA]["spec"]["maxReplicas"] == 6
    assert world.condition("ScalingReady")["reason"] == "ScalerStarting"


ABLE = {"type": "AbleToScale", "status": "True", "reason": "Ready", "message": "fine"}
ACTIVE = {"type": "ScalingActive", "status": "True", "reason": "Valid", "message": "read"}
BLIND = {"type": "ScalingActive", "status": "False", "reason": "Failed", "message": "no metric."}


@pytest.mark.parametrize(
    ("conditions", "status", "reason", "text"),
    [
        ((), "Unknown", "ScalerStarting", "HorizontalPodAutoscaler pair has no status yet"),
        ((ABLE,), "Unknown", "ScalerStarting", "has no status yet"),
        ((ABLE, ACTIVE), "True", "ScalerActive", "read"),
        ((ABLE, BLIND), "False", "MetricMissing", "HorizontalPodAutoscaler pair: no metric"),
        (({**ABLE, "status": "False"},), "False", "ScalerFailed", "fine"),
        (({**BLIND, "reason": "ScalingDisabled"},), "False", "ScalerDisabled", "scale to 1"),
    ],
)
def test_scaling_ready_reports_the_autoscaler(
    conditions: tuple[dict[str, str], ...], status: str, reason: str, text: str
) -> None:
    condition = scaling_ready(*conditions)
    assert (condition["status"], condition["reason"]) == (status, reason)
    assert text in condition["message"]


@pytest.mark.parametrize(
    ("status", "expected"), [("True", "ScalerActive"), ("False", "ScalerFailed"), ("", "")]
)
def test_scaling_ready_reports_the_scaled_object(status: str, expected: str) -> None:
    ready = {"type": "Ready", "status": status, "message": "as it is"}
    condition = scaling_ready(*([ready] if status else []), kind=KEDA)
    assert condition["reason"] == (expected or "ScalerStarting")


def parent(accepted: str, resolved: str = "True") -> dict[str, Any]:
    """Return the status that a Gateway sets on a route."""
    return {
        "conditions": [
            {"type": "Accepted", "status": accepted, "message": "so it is."},
            {"type": "ResolvedRefs", "status": resolved, "reason": "BackendNotFound"},
        ]
    }


@pytest.mark.parametrize(
    ("networking", "status", "expected", "text"),
    [
        (GATEWAYS, {}, "RoutePending", "0 of 2 Gateways"),
        (GATEWAYS, {"parents": [parent("True")]}, "RoutePending", "1 of 2 Gateways"),
        (GATEWAYS, {"parents": [parent("True")] * 2}, "RouteAccepted", "by 2 Gateways"),
        (GATEWAYS, {"parents": [parent("True"), parent("False")]}, "RouteNotAccepted", "so it is"),
        (GATEWAYS, {"parents": [parent("True", "False")]}, "RouteNotAccepted", "BackendNotFound"),
        (INGRESS, {}, "RoutePending", "no controller"),
        (INGRESS, {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}, "RouteAccepted", "address"),
    ],
)
def test_route_ready_reports_the_route(
    networking: dict[str, Any], status: dict[str, Any], expected: str, text: str
) -> None:
    world = settled(resource(networking=networking))
    (key,) = world.optional_objects
    world.optional_objects[key]["status"] = status
    world.step()
    condition = world.condition("RouteReady")
    assert condition["reason"] == expected
    assert text in condition["message"]
    assert world.condition("Ready")["status"] == "True"


def test_ingress_replaces_a_route() -> None:
    world = settled(resource(networking=GATEWAYS))
    world.spec["networking"] = INGRESS
    world.step()
    assert set(world.optional_objects) == {("Ingress", "pair")}


@pytest.mark.parametrize(
    ("ready", "scaling", "status"),
    [(2, BY_HPA, "True"), (0, BY_HPA, "False"), (2, {**BY_HPA, "minReplicas": 3}, "False")],
)
def test_pods_that_an_autoscaler_adds_do_not_make_the_service_less_available(
    ready: int, scaling: dict[str, Any], status: str
) -> None:
    world = served(scaling=scaling, replicas=3)
    assert world.deployment is not None
    world.deployment["status"] |= {"readyReplicas": ready}
    world.step()
    condition = world.condition("Available")
    assert condition["status"] == status
    assert "of 3 pods" in condition["message"] or ready == 0


def test_without_an_autoscaler_all_pods_have_to_be_ready() -> None:
    world = served(replicas=3)
    assert world.deployment is not None
    world.deployment["status"] |= {"readyReplicas": 2}
    world.step()
    assert world.condition("Available")["status"] == "False"
