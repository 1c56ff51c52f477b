"""What a resource has beside its servers: wanted, remembered, taken away, and told of."""

from typing import Any

import pytest

from golden.world import World, fetched, resource
from specdec.api import names

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
    world = World(resource(serving=serving))
    world.settle()
    return world


def note(world: World) -> str:
    """What the Service remembers."""
    annotations = world.services["pair"]["metadata"].get("annotations", {})
    return str(annotations.get(names.KINDS, ""))


def told(*conditions: dict[str, str], kind: tuple[str, str] = HPA, **scaling: Any) -> Any:
    """ScalingReady once the autoscaler says this of itself."""
    world = served(scaling={**(BY_HPA if kind == HPA else BY_KEDA), **scaling})
    world.extras[kind]["status"] = {"conditions": list(conditions)}
    world.step()
    ready = world.condition("Ready")
    assert ready["status"] == "True", "an autoscaler held the service back"
    return world.condition("ScalingReady")


def test_a_resource_without_extras_has_no_trace_of_them() -> None:
    world = served()
    assert world.extras == {}
    assert note(world) == ""
    assert "ScalingReady" not in {c["type"] for c in world.cr["status"]["conditions"]}


def test_an_autoscaler_points_at_the_resource_and_never_at_its_deployment() -> None:
    for scaling, key in ((BY_HPA, HPA), (BY_KEDA, KEDA)):
        spec = served(scaling=scaling).extras[key]["spec"]
        wanted = {"apiVersion": "specdec.dev/v1alpha1", "kind": "SpeculativeModel", "name": "pair"}
        assert spec["scaleTargetRef"] == wanted


@pytest.mark.parametrize("replicas", [0, 1, 3])
def test_the_deployment_follows_whoever_changes_the_replicas(replicas: int) -> None:
    world = served(scaling=BY_HPA)
    world.spec["serving"]["replicas"] = replicas
    world.step()
    assert world.deployment is not None
    assert world.deployment["spec"]["replicas"] == replicas


def test_the_first_service_that_is_made_remembers_the_kind() -> None:
    world = World(resource(serving={"scaling": BY_HPA}))
    seen: list[str] = []
    while HPA not in world.extras:
        world.step()
        seen += [body["kind"] for body in (world.last.apply if world.last else ())]
        if world.claim is None:
            world.bind()
        for name, job in list(world.jobs.items()):
            if "status" not in job:
                component = job["metadata"]["labels"][names.COMPONENT]
                world.finish(name, fetched() if component == "fetch" else {})
    assert seen.index("Service") < seen.index("HorizontalPodAutoscaler")
    assert note(world) == "HorizontalPodAutoscaler"


def test_another_driver_takes_the_first_away_and_forgets_it_afterwards() -> None:
    world = served(scaling=BY_HPA)
    world.spec["serving"]["scaling"] = BY_KEDA
    world.step()
    assert set(world.extras) == {KEDA}
    assert note(world) == "HorizontalPodAutoscaler,ScaledObject"
    world.step()
    assert note(world) == "ScaledObject"


@pytest.mark.parametrize("change", [{"serving": {}}, {"suspend": True}])
def test_without_need_of_it_it_goes(change: dict[str, Any]) -> None:
    world = served(scaling=BY_HPA)
    world.spec.update(change)
    world.step()
    assert world.extras == {}
    assert "ScalingReady" not in {c["type"] for c in world.cr["status"]["conditions"]}
    world.step()
    assert note(world) == ""


def test_it_is_kept_while_another_revision_is_built() -> None:
    world = served(scaling=BY_HPA)
    world.spec["target"]["limits"]["maxSeqLen"] = 768
    world.spec["serving"]["scaling"] = {**BY_HPA, "maxReplicas": 6}
    world.step()
    assert world.condition("Ready")["reason"] == "Queued"
    assert world.extras[HPA]["spec"]["maxReplicas"] == 6
    assert world.condition("ScalingReady")["reason"] == "ScalerStarting"


ABLE = {"type": "AbleToScale", "status": "True", "reason": "Ready", "message": "fine"}
ACTIVE = {"type": "ScalingActive", "status": "True", "reason": "Valid", "message": "read"}
BLIND = {"type": "ScalingActive", "status": "False", "reason": "Failed", "message": "no metric."}


@pytest.mark.parametrize(
    ("conditions", "status", "reason", "words"),
    [
        ((), "Unknown", "ScalerStarting", "HorizontalPodAutoscaler pair has no status yet"),
        ((ABLE,), "Unknown", "ScalerStarting", "has no status yet"),
        ((ABLE, ACTIVE), "True", "ScalerActive", "read"),
        ((ABLE, BLIND), "False", "MetricMissing", "HorizontalPodAutoscaler pair: no metric"),
        (({**ABLE, "status": "False"},), "False", "ScalerFailed", "fine"),
        (({**BLIND, "reason": "ScalingDisabled"},), "False", "ScalerDisabled", "scale to 1"),
    ],
)
def test_what_an_autoscaler_says_is_told(
    conditions: tuple[dict[str, str], ...], status: str, reason: str, words: str
) -> None:
    found = told(*conditions)
    assert (found["status"], found["reason"]) == (status, reason)
    assert words in found["message"]


@pytest.mark.parametrize(
    ("status", "wanted"), [("True", "ScalerActive"), ("False", "ScalerFailed"), ("", "")]
)
def test_what_keda_says_is_told(status: str, wanted: str) -> None:
    said = {"type": "Ready", "status": status, "message": "as it is"}
    found = told(*([said] if status else []), kind=KEDA)
    assert found["reason"] == (wanted or "ScalerStarting")


def parent(accepted: str, resolved: str = "True") -> dict[str, Any]:
    """What one Gateway says of a route."""
    return {
        "conditions": [
            {"type": "Accepted", "status": accepted, "message": "so it is."},
            {"type": "ResolvedRefs", "status": resolved, "reason": "BackendNotFound"},
        ]
    }


@pytest.mark.parametrize(
    ("networking", "status", "wanted", "words"),
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
def test_what_is_said_of_a_route_is_told(
    networking: dict[str, Any], status: dict[str, Any], wanted: str, words: str
) -> None:
    world = World(resource(networking=networking))
    world.settle()
    (key,) = world.extras
    world.extras[key]["status"] = status
    world.step()
    found = world.condition("RouteReady")
    assert found["reason"] == wanted
    assert words in found["message"]
    assert world.condition("Ready")["status"] == "True"


def test_another_way_in_takes_the_first_away() -> None:
    world = World(resource(networking=GATEWAYS))
    world.settle()
    world.spec["networking"] = INGRESS
    world.step()
    assert set(world.extras) == {("Ingress", "pair")}


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
    found = world.condition("Available")
    assert found["status"] == status
    assert "of 3 pods" in found["message"] or ready == 0


def test_without_an_autoscaler_all_pods_have_to_be_ready() -> None:
    world = served(replicas=3)
    assert world.deployment is not None
    world.deployment["status"] |= {"readyReplicas": 2}
    world.step()
    assert world.condition("Available")["status"] == "False"
