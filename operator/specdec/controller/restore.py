"""Apply an object whose fields somebody else may have changed so that ours contradict them."""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.kinds import EXTRAS
from specdec.cluster import Cluster, Rejected

Object = Mapping[str, Any]

INVALID = 422
# Kinds whose whole spec is the operator's. A claim's is not: it names its volume.
_REPLACED = frozenset({"Service", "Deployment", names.GROUP_KIND, *EXTRAS})


async def apply(
    cluster: Cluster, live: Object | None, intent: Object, manager: str
) -> dict[str, Any]:
    """Apply an intent, over the live object's whole spec where the two make no valid one.

    Returns the object as it is now.

    Raises:
        Rejected: the server refuses the intent as it stands.
        ClusterError: a request failed.
    """
    try:
        return await cluster.apply(intent, manager)
    except Rejected as error:
        if live is None or error.code != INVALID or intent["kind"] not in _REPLACED:
            raise
    return await _replace(cluster, live, intent, manager)


async def _replace(cluster: Cluster, live: Object, intent: Object, manager: str) -> dict[str, Any]:
    """Put an intent's spec in place of one with fields of somebody else that contradict it.

    Another number for a port of ours is an entry beside ours, and both have one name. What the
    server allocated stays: the addresses of a Service, and node ports where its ports do.
    """
    restorer = f"{manager}-restore"
    spec = {"op": "replace", "path": "/spec", "value": intent["spec"]}
    await cluster.patch(live, [spec], restorer)
    applied = await cluster.apply(intent, manager)
    # A field with two managers outlives the intent that drops it: the restorer lets go.
    managers = [entry["manager"] for entry in applied["metadata"].get("managedFields", [])]
    if restorer in managers:
        entry = f"/metadata/managedFields/{managers.index(restorer)}"
        return await cluster.patch(applied, [{"op": "remove", "path": entry}], restorer)
    return applied
