"""Reasons of `VolumePruned`: the deletion of files that earlier revisions left on the volume.

They never block `Ready`.
"""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Reason, Section

_SECTION = Section(Type.VOLUME_PRUNED)


class RetentionReason(Reason):
    """Reasons of `VolumePruned`."""

    PRUNED = _SECTION.progress(
        "Pruned",
        "the files of revisions that left `status.history` are deleted, except those that another "
        "resource uses",
    )
    PRUNING = _SECTION.progress("Pruning", "the prune Job is running", "wait")
    PRUNE_WAITS = _SECTION.progress(
        "PruneWaits",
        "this resource is not Ready yet, another resource that uses the claim has not published "
        "its current spec yet, or a pod still serves an earlier revision",
        "wait; the message names the resource or the revision",
    )
    PRUNE_BLOCKED = _SECTION.blocked(
        "PruneBlocked",
        "nothing is deleted, because the files that a resource of the claim needs are unknown",
        "correct or delete the resource in the message",
    )
    PRUNE_FAILED = _SECTION.failed(
        "PruneFailed",
        "the prune Job failed; the service is not affected",
        "read the message, then delete the Job",
    )
