"""StorageReady: the one claim all later stages work on."""

from dataclasses import replace
from decimal import Decimal

from specdec.api import names
from specdec.api.conditions import Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.api.quantity import amount
from specdec.desired import storage as desired
from specdec.desired.pod import Volume
from specdec.pipeline.observed import Object, Observed
from specdec.pipeline.stage import POLL, Context, Outcome


def storage(context: Context) -> Outcome:
    """Want the claim (or find the user's), and say whether a volume is bound to it.

    A pending claim does not stop the chain: with a storage class that waits for its first
    consumer, the fetch pod is what gets it bound.
    """
    model, claim = context.model, context.observed.claim
    name = names.claim_name(model)
    own = model.spec.storage.existing_claim is None
    size = _size(model, claim)
    apply = (desired.claim(model, size),) if own else ()
    facts = replace(context.facts, volume=volume_of(model, context.observed))
    if claim is None and not own:
        missing = Condition(
            Type.STORAGE_READY,
            "False",
            "ClaimNotFound",
            f"claim {name} (spec.storage.existingClaim) does not exist in namespace "
            f"{model.metadata.namespace}: create it, or correct the name",
        )
        return Outcome((missing,), facts, proceed=False, requeue_after=POLL)
    condition = _judge(name, claim)
    if own and size != model.spec.storage.size:
        condition = replace(
            condition,
            message=f"{condition.message}; it keeps {size}, because a claim cannot shrink: set "
            f"spec.storage.size (now {model.spec.storage.size}) to {size}",
        )
    # Nothing may be asked of a claim that is not there: its uid tells volumes apart.
    proceed = claim is not None and condition.reason != "ClaimLost"
    waiting = None if condition.status == "True" else POLL
    return Outcome((condition,), facts, proceed=proceed, apply=apply, requeue_after=waiting)


def volume_of(model: SpeculativeModel, observed: Observed) -> Volume:
    """The claim with what is known of it live."""
    name = names.claim_name(model)
    claim = observed.claim or {}
    modes = claim.get("spec", {}).get("accessModes") or [model.spec.storage.access_mode]
    identity = claim.get("metadata", {}).get("uid", name)
    return Volume(name, identity, single_node="ReadWriteMany" not in modes)


def _size(model: SpeculativeModel, claim: Object | None) -> str | None:
    """How much to ask for: what the claim asks for already where the spec has less.

    The spec may have less: a larger size that was refused is put back, or somebody else grew the
    claim. After an expansion that failed, anything above the capacity may be asked for.
    """
    size = model.spec.storage.size
    live = (claim or {}).get("spec", {}).get("resources", {}).get("requests", {}).get("storage")
    capacity = (claim or {}).get("status", {}).get("capacity", {}).get("storage")
    if live is None or not _less(size, live) or (capacity and _less(capacity, size)):
        return size
    return str(live)


def _less(one: str | None, other: str | None) -> bool:
    """Whether a quantity is less than another; False where either is no number."""
    first, second = amount(one), amount(other)
    return isinstance(first, Decimal) and isinstance(second, Decimal) and first < second


def _judge(name: str, claim: Object | None) -> Condition:
    if claim is None:
        message = f"claim {name} is being created"
        return Condition(Type.STORAGE_READY, "False", "ClaimPending", message)
    if claim["metadata"].get("deletionTimestamp"):
        message = f"claim {name} is being deleted: wait for that, or restore it"
        return Condition(Type.STORAGE_READY, "False", "ClaimLost", message)
    phase = claim.get("status", {}).get("phase", "Pending")
    spec = claim.get("spec", {})
    size = spec.get("resources", {}).get("requests", {}).get("storage", "?")
    modes = ", ".join(spec.get("accessModes", []))
    if phase == "Bound":
        message = f"claim {name} is bound ({size}, {modes})"
        return Condition(Type.STORAGE_READY, "True", "Bound", message)
    if phase == "Lost":
        message = f"claim {name} lost its volume {spec.get('volumeName', '')}: restore the volume"
        return Condition(Type.STORAGE_READY, "False", "ClaimLost", message)
    kind = spec.get("storageClassName") or "the default"
    message = (
        f"claim {name} waits for a volume ({size}, {modes}, storage class {kind}): "
        f"kubectl describe pvc {name} says why"
    )
    return Condition(Type.STORAGE_READY, "False", "ClaimPending", message)
