"""Autoscaler, disruption budgets, network policy and route.

`Ready` does not wait for their conditions. If the API server refuses a budget or a policy, that
makes `Available` False, and so `Ready`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from specdec.api.conditions import Condition, Status, Type
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.api.reasons import Reason, RouteReason, ScalingReason
from specdec.desired import isolation
from specdec.desired import optional_objects as desired
from specdec.pipeline.observed import Object, Ref
from specdec.pipeline.stage import Context, Outcome
from specdec.pipeline.stages import traffic_split

# Seconds. The operator polls, because it watches kinds that are installed later with a delay.
# Longer than `POLL`, so that it is what remains when nothing else is in progress.
UNKNOWN_REQUEUE = 30.0


def optional_objects(context: Context) -> Outcome:
    """Apply what the spec asks for and report on it; delete what the spec no longer asks for."""
    portion = traffic_split.portion(context)
    objects = desired.objects(context.model, portion.percent)
    keys = [(body["kind"], body["metadata"]["name"]) for body in objects]
    # The stage `isolation` applies these.
    policies = [("NetworkPolicy", name) for name in isolation.policy_names(context.model)]
    actual = context.observed.optional_objects
    superfluous = sorted(key for key in actual if key not in (*keys, *policies))
    conditions = [
        _JUDGES[kind](f"{kind} {name}", actual.get((kind, name), {}))
        for kind, name in keys
        if kind in _JUDGES
    ]
    unknown = any(condition.status == "Unknown" for condition in conditions)
    return Outcome(
        tuple(traffic_split.with_portion(condition, portion) for condition in conditions),
        context.facts,
        proceed=True,
        apply=objects,
        delete=tuple(Ref(OPTIONAL_KINDS[kind].version, kind, name) for kind, name in superfluous),
        requeue_after=UNKNOWN_REQUEUE if unknown else None,
    )


def kinds(context: Context) -> set[str]:
    """The kinds that the Service's annotation lists: those of actual and of desired objects."""
    return desired.kinds(context.model) | {kind for kind, _ in context.observed.optional_objects}


def _autoscaler(title: str, live: Object) -> Condition:
    """ScalingReady, from the conditions of a HorizontalPodAutoscaler."""
    by_type = _by_type(live.get("status", {}).get("conditions", []))
    for type_, reason in (
        ("AbleToScale", ScalingReason.SCALER_FAILED),
        ("ScalingActive", ScalingReason.METRIC_MISSING),
    ):
        condition = by_type.get(type_, {})
        if condition.get("reason") == "ScalingDisabled":
            message = (
                f"{title} is disabled while spec.serving.replicas is 0: scale to 1 to enable it"
            )
            return _scaling("False", ScalingReason.SCALER_DISABLED, message)
        if condition.get("status") == "False":
            return _scaling("False", reason, f"{title}: {_message(condition)}")
    return _scaler(title, by_type.get("ScalingActive", {}))


def _scaled_object(title: str, live: Object) -> Condition:
    """ScalingReady, from the conditions of a ScaledObject of KEDA."""
    by_type = _by_type(live.get("status", {}).get("conditions", []))
    return _scaler(title, by_type.get("Ready", {}))


def _scaler(title: str, condition: Mapping[str, Any]) -> Condition:
    if condition.get("status") == "True":
        return _scaling("True", ScalingReason.SCALER_ACTIVE, f"{title}: {_message(condition)}")
    if condition.get("status") == "False":
        return _scaling("False", ScalingReason.SCALER_FAILED, f"{title}: {_message(condition)}")
    return _scaling("Unknown", ScalingReason.SCALER_STARTING, f"{title} has no status yet")


def _http_route(title: str, live: Object) -> Condition:
    """RouteReady, from the status of an HTTPRoute: each Gateway that it names has to accept it."""
    parents = live.get("status", {}).get("parents", [])
    reports = [_by_type(parent.get("conditions", [])) for parent in parents]
    for type_ in ("Accepted", "ResolvedRefs"):
        for report in reports:
            if report.get(type_, {}).get("status") == "False":
                message = f"{title}: {_message(report[type_])}"
                return _route("False", RouteReason.ROUTE_NOT_ACCEPTED, message)
    desired_count = len(live.get("spec", {}).get("parentRefs", []))
    accepted = sum(report.get("Accepted", {}).get("status") == "True" for report in reports)
    if accepted and accepted >= desired_count:
        return _route(
            "True", RouteReason.ROUTE_ACCEPTED, f"{title} is accepted by {accepted} Gateways"
        )
    message = f"{title} is accepted by {accepted} of {desired_count} Gateways so far"
    return _route("Unknown", RouteReason.ROUTE_PENDING, message)


def _ingress(title: str, live: Object) -> Condition:
    """RouteReady of an Ingress, which has no conditions: its controller gives it an address."""
    if live.get("status", {}).get("loadBalancer", {}).get("ingress"):
        return _route("True", RouteReason.ROUTE_ACCEPTED, f"{title} has an address")
    return _route(
        "Unknown", RouteReason.ROUTE_PENDING, f"no controller has given {title} an address yet"
    )


_JUDGES: Mapping[str, Callable[[str, Object], Condition]] = {
    "HorizontalPodAutoscaler": _autoscaler,
    "ScaledObject": _scaled_object,
    "HTTPRoute": _http_route,
    "Ingress": _ingress,
}


def _by_type(conditions: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {str(condition["type"]): condition for condition in conditions}


def _message(condition: Mapping[str, Any]) -> str:
    return str(condition.get("message") or condition.get("reason", "")).rstrip(".")


def _scaling(status: Status, reason: Reason, message: str) -> Condition:
    return Condition(Type.SCALING_READY, status, reason, message)


def _route(status: Status, reason: Reason, message: str) -> Condition:
    return Condition(Type.ROUTE_READY, status, reason, message)
