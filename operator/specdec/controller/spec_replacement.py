"""Apply one object, even where fields of other clients contradict the desired state.

`apply` calls it for every child. Server-side apply merges our fields with those of others, and the
merged object may be invalid. Then the live spec is replaced as a whole by the desired one.
"""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.cluster import Cluster, Conflict, Rejected

Object = Mapping[str, Any]

INVALID = 422
# Kinds whose whole spec belongs to the operator. A claim is left out: its spec names its volume.
_REPLACEABLE_KINDS = frozenset({"Service", "Deployment", names.GROUP_KIND, *OPTIONAL_KINDS})

# How often the status of an object may change while a change of it is applied.
_STATUS_CHANGES = 3


async def apply_or_replace_spec(
    cluster: Cluster, live: Object, intent: Object, manager: str
) -> dict[str, Any]:
    """Apply the desired state; replace the live spec if the merge of both is invalid.

    Returns:
        The object as stored.

    Raises:
        Rejected: the server refuses the desired state itself.
        Conflict: the object was changed or deleted since it was read.
        ClusterError: another request failed.
    """
    live = await _managed_by_apply(cluster, live, manager)
    try:
        return await _apply(cluster, live, intent, manager)
    except Rejected as error:
        if error.code != INVALID or intent["kind"] not in _REPLACEABLE_KINDS:
            raise
    return await _replace_spec(cluster, live, intent, manager)


def at_version(intent: Object, live: Object) -> dict[str, Any]:
    """The intent for an object as it was read; to apply it to another version is a conflict."""
    read = {key: live["metadata"][key] for key in ("uid", "resourceVersion")}
    return {**intent, "metadata": {**intent["metadata"], **read}}


async def _apply(cluster: Cluster, live: Object, intent: Object, manager: str) -> dict[str, Any]:
    """Apply an intent to an object as it was read; its status may have changed since."""
    for _ in range(_STATUS_CHANGES):
        try:
            return await cluster.apply(at_version(intent, live), manager)
        except Conflict:
            meta = live["metadata"]
            newer = await cluster.find(
                intent["apiVersion"], intent["kind"], meta["namespace"], meta["name"]
            )
            if newer is None or _without_status(newer) != _without_status(live):
                raise
            live = newer
    return await cluster.apply(at_version(intent, live), manager)


def _without_status(item: Object) -> dict[str, Any]:
    meta = {key: item["metadata"].get(key) for key in ("uid", "labels", "ownerReferences")}
    rest = {key: value for key, value in item.items() if key not in ("metadata", "status")}
    return {**rest, "metadata": meta}


async def _managed_by_apply(cluster: Cluster, live: Object, manager: str) -> Object:
    """The live object, with the fields that our create request set managed by apply.

    A create request is an operation "Update". Otherwise, apply would not remove a field that only
    the create request has set.
    """
    entries = live["metadata"].get("managedFields", [])
    for number, entry in enumerate(entries):
        if entry["manager"] == manager and entry["operation"] == "Update":
            path = f"/metadata/managedFields/{number}/operation"
            return await cluster.patch(
                live, [{"op": "replace", "path": path, "value": "Apply"}], manager
            )
    return live


async def _replace_spec(
    cluster: Cluster, live: Object, intent: Object, manager: str
) -> dict[str, Any]:
    """Replace the live spec, then apply as usual.

    An example: somebody changed the number of a Service's port. Apply then adds our port beside
    it, and the Service has two ports of one name. The API server keeps what it has allocated, such
    as addresses and node ports, although the new spec does not have these fields.
    """
    temporary_manager = f"{manager}-restore"
    replacement = {"op": "replace", "path": "/spec", "value": intent["spec"]}
    replaced = await cluster.patch(live, [replacement], temporary_manager)
    applied = await cluster.apply(at_version(intent, replaced), manager)
    # A field stays as long as any manager owns it, so remove the temporary manager.
    managers = [entry["manager"] for entry in applied["metadata"].get("managedFields", [])]
    if temporary_manager in managers:
        entry = f"/metadata/managedFields/{managers.index(temporary_manager)}"
        removal = {"op": "remove", "path": entry}
        return await cluster.patch(applied, [removal], temporary_manager)
    return applied
