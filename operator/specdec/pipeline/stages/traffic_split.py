"""The percentage of a route's requests that go to another resource, the one of `gateway.split`.

The other resource may not serve yet, may have failed, or may be suspended or deleted. A Gateway
returns errors for requests to a Service without pods. So the percentage of the spec applies only
while the other resource serves; otherwise the percentage is 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specdec.api.cause import Cause
from specdec.api.conditions import Condition, Type
from specdec.api.networking import RouteSplit
from specdec.api.reasons import RouteReason
from specdec.desired import routes
from specdec.pipeline.observed import Object
from specdec.pipeline.stage import Context


@dataclass(frozen=True)
class Portion:
    """The percentage of requests that go to resource `name` now.

    If that is 0 although the spec sets another percentage, `obstacle` is the reason.
    """

    percent: int = 0
    name: str = ""
    obstacle: Cause | None = None


def portion(context: Context) -> Portion:
    """The present percentage for the resource of the route's split; 0 without a split."""
    split = context.model.spec.networking.split
    if split is None:
        return Portion()
    obstacle = _obstacle(context, split) if split.percent else None
    return Portion(0 if obstacle else split.percent, split.model_ref.name, obstacle)


def with_portion(condition: Condition, portion: Portion) -> Condition:
    """RouteReady with the state of the split added; any other condition unchanged."""
    if condition.type != Type.ROUTE_READY or condition.reason == RouteReason.ROUTE_NOT_ACCEPTED:
        return condition
    if portion.obstacle is not None:
        return replace(
            condition,
            status="Unknown",
            reason=portion.obstacle.reason,
            message=f"{condition.message}; {portion.obstacle.message}",
        )
    if not portion.percent or condition.status != "True":
        return condition
    share = f"{portion.percent} % of the requests go to {portion.name}"
    return replace(condition, message=f"{condition.message}; {share}")


def _obstacle(context: Context, split: RouteSplit) -> Cause | None:
    """Why the other resource gets no requests; None if it gets the percentage of the spec."""
    own, other = context.model.metadata.name, split.model_ref.name
    peer = context.observed.peer
    if peer is None or peer["metadata"].get("deletionTimestamp"):
        why = f"SpeculativeModel {other} of networking.gateway.split does not exist"
        return Cause(RouteReason.SPLIT_TARGET_MISSING, f"{why}: every request goes to {own}")
    if not _serves_http(peer):
        why = f"{other} serves no HTTP (serving.http HealthOnly, or serving.tls)"
        return Cause(RouteReason.SPLIT_WAITS, f"{why}: every request goes to {own}")
    live = context.observed.optional_objects.get(("HTTPRoute", own), {})
    # The peer gets its first requests only when it is Ready (with mode Gate, also verified). From
    # then on some ready pods are enough: a rollout or a lost pod must not move traffic away.
    if _ready(peer) or (routes.sends_to(live, other) and _has_ready_pods(peer)):
        return None
    reason = _ready_condition(peer).get("reason", "no status yet")
    return Cause(
        RouteReason.SPLIT_WAITS, f"{other} is not Ready ({reason}): every request goes to {own}"
    )


def _serves_http(body: Object) -> bool:
    """Whether the Service of a resource has the port that a route leads to."""
    serving = body.get("spec", {}).get("serving", {})
    return serving.get("http", "Open") == "Open" and not serving.get("tls")


def _ready(body: Object) -> bool:
    """Whether a resource is Ready for its present spec."""
    ready = _ready_condition(body)
    current = ready.get("observedGeneration") == body["metadata"].get("generation")
    return current and ready.get("status") == "True"


def _has_ready_pods(body: Object) -> bool:
    """Whether a resource has ready pods and is not suspended."""
    suspended = body.get("spec", {}).get("suspend", False)
    return not suspended and body.get("status", {}).get("readyReplicas", 0) > 0


def _ready_condition(body: Object) -> Mapping[str, Any]:
    conditions = body.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == Type.READY), {})
