"""The objects that only some resources have: autoscaler, budgets, network policy and route."""

from collections.abc import Iterable, Mapping
from typing import Any

from specdec.api import names
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.api.model import SpeculativeModel
from specdec.desired import disruption, policy, routes, scaling


def objects(model: SpeculativeModel, share: int = 0) -> tuple[dict[str, Any], ...]:
    """The desired optional objects; `share` is the argument of `routes.objects`."""
    return (
        *scaling.objects(model),
        *disruption.objects(model),
        *policy.objects(model),
        *routes.objects(model, share),
    )


def kinds(model: SpeculativeModel) -> set[str]:
    """The kinds of the desired optional objects, by the spec alone."""
    return {
        kind for module in (scaling, disruption, policy, routes) if (kind := module.kind(model))
    }


def remembered(services: Iterable[Mapping[str, Any]]) -> set[str]:
    """The kinds that the Services' annotation names: the resource may have objects of them.

    The operator reads only objects of these kinds and of the desired kinds. Most resources have no
    optional objects, and most clusters do not serve all of their kinds. Without a Service, only
    the policies of Jobs can exist.
    """
    services = tuple(services)
    if not services:
        return {"NetworkPolicy"}
    lists = [
        s["metadata"].get("annotations", {}).get(names.OPTIONAL_KINDS_ANNOTATION, "")
        for s in services
    ]
    return {kind for text in lists for kind in text.split(",") if kind in OPTIONAL_KINDS}


def annotation(kinds_: Iterable[str]) -> dict[str, str]:
    """The annotation that remembers kinds; empty without any."""
    text = ",".join(sorted(kinds_))
    return {names.OPTIONAL_KINDS_ANNOTATION: text} if text else {}
