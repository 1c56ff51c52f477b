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
        "`spec.storage.existingClaim`, a `source.pvc.claimName` or a volume of the pods names no "
        "claim in this namespace; with `ModelsFetched` the fetch Job waits for the claim of a "
        "source",
        "create the claim, or correct the name; the Job or pod then continues by itself",
        also=(Type.MODELS_FETCHED, Type.AVAILABLE),
        health=Health.PROGRESSING,
    )
    CLAIM_LOST = _SECTION.blocked(
        "ClaimLost",
        "the claim is being deleted, or its volume no longer exists",
        "restore the volume, or use another claim; a deletion cannot be taken back: end the pods "
        "that the message names, and the operator creates a new claim",
    )
