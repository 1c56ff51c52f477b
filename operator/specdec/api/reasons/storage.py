"""Reasons of `StorageReady`: the claim."""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Health, Reason, Section

_SECTION = Section(Type.STORAGE_READY)


class StorageReason(Reason):
    """Reasons of `StorageReady`."""

    BOUND = _SECTION.progress(
        "Bound",
        "the claim is bound to a volume",
        "if the message reports that the claim cannot grow, set `spec.storage.size` to the "
        "current size, or allow expansion in the storage class",
    )
    CLAIM_PENDING = _SECTION.progress(
        "ClaimPending",
        "the claim is not bound yet",
        "wait, or check the events of the claim: its class, size and access mode must be "
        "available",
    )
    CLAIM_NOT_FOUND = _SECTION.blocked(
        "ClaimNotFound",
        "`spec.storage.existingClaim` names no claim in this namespace",
        "create the claim, or correct the name",
        health=Health.PROGRESSING,
    )
    CLAIM_LOST = _SECTION.blocked(
        "ClaimLost",
        "the claim is being deleted, or its volume no longer exists",
        "restore the volume, or use another claim",
    )
