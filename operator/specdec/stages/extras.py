"""What a resource has beside its servers, and what it says of itself: it holds nothing back."""

from collections.abc import Mapping
from typing import Any

from specdec.api.conditions import Condition, Type
from specdec.api.kinds import EXTRAS
from specdec.desired import extras as desired
from specdec.observed import Object, Ref
from specdec.stages.stage import Context, Outcome


def extras(context: Context) -> Outcome:
    """Want what the spec asks for, take away what it asked for before."""
    wanted = desired.objects(context.model)
    keys = {(body["kind"], body["metadata"]["name"]) for body in wanted}
    old = [key for key in context.observed.extras if key not in keys]
    found = [_scaling(context.observed.extras, body) for body in wanted if _scales(body)]
    return Outcome(
        tuple(found),
        context.facts,
        proceed=True,
        apply=wanted,
        delete=tuple(Ref(EXTRAS[kind].version, kind, name) for kind, name in sorted(old)),
    )


def kinds(context: Context) -> set[str]:
    """The kinds to remember: what there is, and what there will be."""
    return desired.kinds(context.model) | {kind for kind, _ in context.observed.extras}


def _scales(body: Mapping[str, Any]) -> bool:
    return body["kind"] in ("HorizontalPodAutoscaler", "ScaledObject")


def _scaling(live: Mapping[tuple[str, str], Object], body: Mapping[str, Any]) -> Condition:
    """What the autoscaler says of itself."""
    kind, name = body["kind"], body["metadata"]["name"]
    told = live.get((kind, name), {}).get("status", {}).get("conditions", [])
    by_type = {one["type"]: one for one in told}
    place = f"{kind} {name}"
    if kind == "ScaledObject":
        return _keda(place, by_type.get("Ready", {}))
    for which, reason in (("AbleToScale", "ScalerFailed"), ("ScalingActive", "MetricMissing")):
        one = by_type.get(which, {})
        if one.get("reason") == "ScalingDisabled":
            message = f"{place} rests while spec.serving.replicas is 0: scale to 1 to wake it"
            return _condition("False", "ScalerDisabled", message)
        if one.get("status") == "False":
            return _condition("False", reason, f"{place}: {_words(one)}")
    if by_type.get("ScalingActive", {}).get("status") == "True":
        return _condition("True", "ScalerActive", f"{place}: {_words(by_type['ScalingActive'])}")
    return _starting(place)


def _keda(place: str, ready: Mapping[str, Any]) -> Condition:
    if ready.get("status") == "True":
        return _condition("True", "ScalerActive", f"{place}: {_words(ready)}")
    if ready.get("status") == "False":
        return _condition("False", "ScalerFailed", f"{place}: {_words(ready)}")
    return _starting(place)


def _starting(place: str) -> Condition:
    return _condition("Unknown", "ScalerStarting", f"{place} has not been looked at yet")


def _words(condition: Mapping[str, Any]) -> str:
    return str(condition.get("message") or condition.get("reason", "")).rstrip(".")


def _condition(status: Any, reason: str, message: str) -> Condition:
    return Condition(Type.SCALING_READY, status, reason, message)
