"""What a resource has beside its servers, and what it says of itself: it holds nothing back."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from specdec.api.conditions import Condition, Status, Type
from specdec.api.kinds import EXTRAS
from specdec.desired import isolation
from specdec.desired import optional_objects as desired
from specdec.pipeline import traffic_split
from specdec.pipeline.observed import Object, Ref
from specdec.pipeline.stage import Context, Outcome

# A kind that was installed while the operator ran is not always watched from then on.
UNKNOWN_REQUEUE = 10.0


def extras(context: Context) -> Outcome:
    """Want what the spec asks for, take away what it asked for before."""
    portion = traffic_split.portion(context)
    wanted = desired.objects(context.model, portion.percent)
    keys = [(body["kind"], body["metadata"]["name"]) for body in wanted]
    # An earlier stage applies these, before the first Job.
    jobs = [("NetworkPolicy", name) for name in isolation.policy_names(context.model)]
    old = [key for key in context.observed.extras if key not in (*keys, *jobs)]
    found = [
        _TOLD[kind](f"{kind} {name}", context.observed.extras.get((kind, name), {}))
        for kind, name in keys
        if kind in _TOLD
    ]
    return Outcome(
        tuple(traffic_split.told(condition, portion) for condition in found),
        context.facts,
        proceed=True,
        apply=wanted,
        delete=tuple(Ref(EXTRAS[kind].version, kind, name) for kind, name in sorted(old)),
        requeue_after=UNKNOWN_REQUEUE if any(one.status == "Unknown" for one in found) else None,
    )


def kinds(context: Context) -> set[str]:
    """The kinds to remember: what there is, and what there will be."""
    return desired.kinds(context.model) | {kind for kind, _ in context.observed.extras}


def _autoscaler(place: str, live: Object) -> Condition:
    """What a HorizontalPodAutoscaler says of itself."""
    by_type = _by_type(live.get("status", {}).get("conditions", []))
    for which, reason in (("AbleToScale", "ScalerFailed"), ("ScalingActive", "MetricMissing")):
        one = by_type.get(which, {})
        if one.get("reason") == "ScalingDisabled":
            message = f"{place} rests while spec.serving.replicas is 0: scale to 1 to wake it"
            return _scaling("False", "ScalerDisabled", message)
        if one.get("status") == "False":
            return _scaling("False", reason, f"{place}: {_words(one)}")
    return _scaler(place, by_type.get("ScalingActive", {}))


def _scaled_object(place: str, live: Object) -> Condition:
    """What KEDA says of a ScaledObject."""
    return _scaler(place, _by_type(live.get("status", {}).get("conditions", [])).get("Ready", {}))


def _scaler(place: str, one: Mapping[str, Any]) -> Condition:
    if one.get("status") == "True":
        return _scaling("True", "ScalerActive", f"{place}: {_words(one)}")
    if one.get("status") == "False":
        return _scaling("False", "ScalerFailed", f"{place}: {_words(one)}")
    return _scaling("Unknown", "ScalerStarting", f"{place} has not been looked at yet")


def _http_route(place: str, live: Object) -> Condition:
    """What the Gateways say of a route: each that it names has to take it."""
    parents = live.get("status", {}).get("parents", [])
    told = [_by_type(parent.get("conditions", [])) for parent in parents]
    for which in ("Accepted", "ResolvedRefs"):
        for one in told:
            if one.get(which, {}).get("status") == "False":
                return _route("False", "RouteNotAccepted", f"{place}: {_words(one[which])}")
    wanted = len(live.get("spec", {}).get("parentRefs", []))
    taken = [one for one in told if one.get("Accepted", {}).get("status") == "True"]
    if taken and len(taken) >= wanted:
        return _route("True", "RouteAccepted", f"{place} is taken by {len(taken)} Gateways")
    message = f"{place} is taken by {len(taken)} of {wanted} Gateways yet"
    return _route("Unknown", "RoutePending", message)


def _ingress(place: str, live: Object) -> Condition:
    """An Ingress has no conditions; whoever serves it gives it an address."""
    if live.get("status", {}).get("loadBalancer", {}).get("ingress"):
        return _route("True", "RouteAccepted", f"{place} has an address")
    return _route("Unknown", "RoutePending", f"no controller has given {place} an address yet")


_TOLD: Mapping[str, Callable[[str, Object], Condition]] = {
    "HorizontalPodAutoscaler": _autoscaler,
    "ScaledObject": _scaled_object,
    "HTTPRoute": _http_route,
    "Ingress": _ingress,
}


def _by_type(conditions: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {str(one["type"]): one for one in conditions}


def _words(condition: Mapping[str, Any]) -> str:
    return str(condition.get("message") or condition.get("reason", "")).rstrip(".")


def _scaling(status: Status, reason: str, message: str) -> Condition:
    return Condition(Type.SCALING_READY, status, reason, message)


def _route(status: Status, reason: str, message: str) -> Condition:
    return Condition(Type.ROUTE_READY, status, reason, message)
