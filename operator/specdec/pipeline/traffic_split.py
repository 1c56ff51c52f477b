"""How much of a route's traffic goes to another resource: as much as asked, once that one serves.

What the split names is a resource with a life of its own: it is built, fails, is suspended and
deleted. A Gateway would answer errors for the share of a Service that has no pods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specdec.api.cause import Cause
from specdec.api.conditions import Condition, Type
from specdec.api.networking import RouteSplit
from specdec.desired import routes
from specdec.pipeline.observed import Object
from specdec.pipeline.stage import Context


@dataclass(frozen=True)
class Portion:
    """Percent of the requests that go to `name` now, and why none do where some should."""

    percent: int = 0
    name: str = ""
    held: Cause | None = None


def portion(context: Context) -> Portion:
    """The share of the resource that the route's split names; 0 without a split."""
    split = context.model.spec.networking.split
    if split is None:
        return Portion()
    held = _held(context, split) if split.percent else None
    return Portion(0 if held else split.percent, split.model_ref.name, held)


def told(condition: Condition, portion: Portion) -> Condition:
    """What is said of the route, with what becomes of its split; other conditions as they are."""
    if condition.type != Type.ROUTE_READY or condition.reason == "RouteNotAccepted":
        return condition
    if portion.held is not None:
        return replace(
            condition,
            status="Unknown",
            reason=portion.held.reason,
            message=f"{condition.message}; {portion.held.message}",
        )
    if not portion.percent or condition.status != "True":
        return condition
    share = f"{portion.percent} % of the requests go to {portion.name}"
    return replace(condition, message=f"{condition.message}; {share}")


def _held(context: Context, split: RouteSplit) -> Cause | None:
    """Why the other resource gets nothing; None when it does."""
    own, other = context.model.metadata.name, split.model_ref.name
    peer = context.observed.peer
    if peer is None or peer["metadata"].get("deletionTimestamp"):
        why = f"SpeculativeModel {other} of networking.gateway.split does not exist"
        return Cause("SplitTargetMissing", f"{why}: every request goes to {own}")
    if not _takes_http(peer):
        why = f"{other} serves no HTTP (serving.http HealthOnly, or serving.tls)"
        return Cause("SplitWaits", f"{why}: every request goes to {own}")
    live = context.observed.extras.get(("HTTPRoute", own), {})
    # To begin with it has to be Ready, verified if its Gate asks for that. Later neither a change
    # of it nor the loss of a pod is a reason to turn away from those that answer.
    if _ready(peer) or (routes.sends_to(live, other) and _answers(peer)):
        return None
    reason = _summary(peer).get("reason", "not looked at yet")
    return Cause("SplitWaits", f"{other} is not Ready ({reason}): every request goes to {own}")


def _takes_http(body: Object) -> bool:
    """Whether its Service has the port that a route leads to."""
    serving = body.get("spec", {}).get("serving", {})
    return serving.get("http", "Open") == "Open" and not serving.get("tls")


def _ready(body: Object) -> bool:
    """Whether it says so of the spec that it has now."""
    said = _summary(body)
    fresh = said.get("observedGeneration") == body["metadata"].get("generation")
    return fresh and said.get("status") == "True"


def _answers(body: Object) -> bool:
    """Whether some of its pods do, and are to go on doing so."""
    going = body.get("spec", {}).get("suspend", False)
    return not going and body.get("status", {}).get("readyReplicas", 0) > 0


def _summary(body: Object) -> Mapping[str, Any]:
    conditions = body.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == Type.READY), {})
