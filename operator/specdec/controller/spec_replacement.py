"""Apply one object, even where fields of other clients contradict the desired state.

`apply` calls it for every child. Server-side apply merges our fields with those of others, and the
merged object may be invalid. Then the live spec is replaced as a whole by the desired one.
"""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.cluster import Cluster, Rejected

Object = Mapping[str, Any]

INVALID = 422
# Kinds whose whole spec belongs to the operator. A claim is left out: its spec names its volume.
_REPLACEABLE_KINDS = frozenset({"Service", "Deployment", names.GROUP_KIND, *OPTIONAL_KINDS})


async def apply_or_replace_spec(
    cluster: Cluster, live: Object, intent: Object, manager: str
) -> dict[str, Any]:
    """Apply the desired state; replace the live spec if the merge of both is invalid.

    Returns:
        The object as stored.

    Raises:
        Rejected: the server refuses the desired state itself.
        ClusterError: a request failed.
    """
    live = await _managed_by_apply(cluster, live, manager)
    try:
        return await cluster.apply(intent, manager)
    except Rejected as error:
        if error.code != INVALID or intent["kind"] not in _REPLACEABLE_KINDS:
            raise
    return await _replace_spec(cluster, live, intent, manager)


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
    await cluster.patch(live, [replacement], temporary_manager)
    applied = await cluster.apply(intent, manager)
    # A field stays as long as any manager owns it, so remove the temporary manager.
    managers = [entry["manager"] for entry in applied["metadata"].get("managedFields", [])]
    if temporary_manager in managers:
        entry = f"/metadata/managedFields/{managers.index(temporary_manager)}"
        removal = {"op": "remove", "path": entry}
        return await cluster.patch(applied, [removal], temporary_manager)
    return applied
