"""Give Jobs and ConfigMaps back their owner reference after somebody has removed it.

`apply_decision` calls `adopt_orphans` last. An orphan is a child that the decision neither applies
nor deletes, such as a finished Job, and that has no owner reference to the resource. If it has no
owner at all, the garbage collector would keep it after the resource is deleted.
"""

import logging

from specdec.api import names
from specdec.api.model import KIND, SpeculativeModel
from specdec.cluster import Cluster, Rejected
from specdec.controller.children import field_manager, log_change
from specdec.controller.spec_replacement import at_version
from specdec.pipeline.decide import Decision
from specdec.pipeline.observed import Object, Observed

logger = logging.getLogger(__name__)


async def adopt_orphans(
    cluster: Cluster, model: SpeculativeModel, observed: Observed, decision: Decision
) -> None:
    """Set the owner of every orphan; raises ClusterError, but not for a rejection."""
    for orphan in _orphans(model, observed, decision):
        await _adopt(cluster, model, orphan)


def _orphans(model: SpeculativeModel, observed: Observed, decision: Decision) -> list[Object]:
    """Jobs and ConfigMaps that lack the owner, and that the decision neither applies nor deletes.

    An owner of the resource's name with another uid is a deleted predecessor of the resource. The
    garbage collector is about to delete its children, so they are not adopted.
    """
    handled = {(item["kind"], item["metadata"]["name"]) for item in decision.apply}
    handled |= {(ref.kind, ref.name) for ref in (*decision.delete, *decision.delete_last)}
    return [
        live
        for live in (*observed.jobs.values(), *observed.config_maps.values())
        if (live["kind"], live["metadata"]["name"]) not in handled
        and not live["metadata"].get("deletionTimestamp")
        and not any(
            owner["kind"] == KIND and owner["name"] == model.metadata.name
            for owner in live["metadata"].get("ownerReferences", [])
        )
    ]


async def _adopt(cluster: Cluster, model: SpeculativeModel, live: Object) -> None:
    """Set the owner; a rejection is only logged because a leftover object is harmless."""
    meta = {key: live["metadata"][key] for key in ("name", "namespace")}
    meta["ownerReferences"] = names.owned_by(model)
    intent = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": meta}
    try:
        # With the uid, apply does not create an empty object if this one was deleted since.
        manager = f"{field_manager(model, live)}-membership"
        await cluster.apply(at_version(intent, live), manager)
    except Rejected as error:
        logger.warning("%s stays without an owner: %s", meta["name"], error)
        return
    log_change(model, "changed %s %s", live["kind"], meta["name"])
