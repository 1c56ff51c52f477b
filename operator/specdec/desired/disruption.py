"""PodDisruptionBudgets: how many pods of a server a node drain may evict at once."""

from typing import Any

from specdec.api import names
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.api.model import SpeculativeModel
from specdec.desired.child import metadata

_KIND = "PodDisruptionBudget"


def kind(model: SpeculativeModel) -> str | None:
    """The kind of the budgets; None without any."""
    return _KIND if _roles(model) else None


def objects(model: SpeculativeModel) -> tuple[dict[str, Any], ...]:
    """A budget for each server."""
    roles = _roles(model)
    if roles and model.spec.serving.nodes_per_replica > 1:
        return (_budget(model, names.group_name(model), *_group(model)),)
    return tuple(
        _budget(
            model, names.server_name(model, role), _bounds(model, role), _selector(model, role)
        )
        for role in roles
    )


def _roles(model: SpeculativeModel) -> tuple[str, ...]:
    """The servers that have a budget; a budget for a single replica would block every drain."""
    if model.spec.serving.disruption.mode == "Disabled":
        return ()
    return tuple(role for role in names.servers(model) if model.replicas(role) > 1)


def _budget(
    model: SpeculativeModel, name: str, bounds: dict[str, int], selector: dict[str, Any]
) -> dict[str, Any]:
    return {
        "apiVersion": OPTIONAL_KINDS[_KIND].version,
        "kind": _KIND,
        "metadata": metadata(model, name, "disruption"),
        "spec": {
            **bounds,
            "selector": selector,
            # A pod that is not ready serves no client: it must not block a drain.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _bounds(model: SpeculativeModel, role: str = "target") -> dict[str, int]:
    """The bounds in the spec, which count replicas of the service.

    A server with its own number of replicas loses at most one pod at a time, or none if
    maxUnavailable is 0.
    """
    spec = model.spec.serving.disruption
    if model.own_replicas(role) is not None:
        return {"maxUnavailable": 0 if spec.max_unavailable == 0 else 1}
    if spec.min_available is not None:
        return {"minAvailable": spec.min_available}
    return {"maxUnavailable": 1 if spec.max_unavailable is None else spec.max_unavailable}


def _selector(model: SpeculativeModel, role: str) -> dict[str, Any]:
    return {"matchLabels": names.selector(model, role)}


def _group(model: SpeculativeModel) -> tuple[dict[str, int], dict[str, Any]]:
    """Bounds and selector of the one budget for the pods of all groups.

    One evicted pod restarts its whole group. So the budget allows as many evicted pods as replicas
    may be unavailable. The API server supports `maxUnavailable` only for pods of controllers that
    it knows. It supports a number in `minAvailable` for all pods.
    """
    serving, bounds = model.spec.serving, _bounds(model)
    evictable = bounds.get("maxUnavailable", serving.replicas - bounds.get("minAvailable", 0))
    pods = serving.replicas * serving.nodes_per_replica - max(evictable, 0)
    labels = names.selector(model)
    component = labels.pop(names.COMPONENT)
    members = {"key": names.COMPONENT, "operator": "In", "values": [component, names.WORKER]}
    return {"minAvailable": pods}, {"matchLabels": labels, "matchExpressions": [members]}
