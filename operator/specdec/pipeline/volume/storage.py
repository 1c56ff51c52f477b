"""StorageReady: the PersistentVolumeClaim of the volume that all later stages use."""

from dataclasses import replace
from decimal import Decimal

from specdec.api import names
from specdec.api.conditions import Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.api.quantity import amount
from specdec.api.reasons import StorageReason
from specdec.desired import storage as desired
from specdec.desired.pod import Volume
from specdec.pipeline import job
from specdec.pipeline.live_job import being_deleted
from specdec.pipeline.observed import Object, Observed, job_state
from specdec.pipeline.stage import POLL, SOON, Context, Outcome


def storage(context: Context) -> Outcome:
    """Apply the claim, or check the user's own, and report whether a volume is bound to it.

    A pending claim does not stop the chain: some storage classes bind it when the first pod, the
    fetch Job's, uses it.
    """
    model, claim = context.model, context.observed.claim
    name = names.claim_name(model)
    created = model.spec.storage.existing_claim is None
    size = _size(model, claim)
    apply = (desired.claim(model, size, _modes(claim)),) if created else ()
    facts = replace(context.facts, volume=volume_of(model, context.observed))
    if claim is None and not created:
        missing = Condition(
            Type.STORAGE_READY,
            "False",
            StorageReason.CLAIM_NOT_FOUND,
            f"claim {name} (spec.storage.existingClaim) does not exist in namespace "
            f"{model.metadata.namespace}: create it, or correct the name",
        )
        return Outcome((missing,), facts, proceed=False, requeue_after=POLL)
    if claim is not None and being_deleted(claim):
        return _deleted(context, claim)
    condition = _judge(name, claim)
    if created and size != model.spec.storage.size:
        condition = replace(
            condition,
            message=f"{condition.message}; it keeps {size}, because a claim cannot shrink: set "
            f"spec.storage.size (now {model.spec.storage.size}) to {size}",
        )
    if created and facts.volume.single_node and model.access_mode == "ReadWriteMany":
        condition = replace(
            condition,
            message=f"{condition.message}; a claim keeps its mode, so all pods run on one node: "
            "to use several, create another SpeculativeModel",
        )
    # Later stages need the claim to exist: its uid distinguishes volumes.
    proceed = claim is not None and condition.reason != StorageReason.CLAIM_LOST
    waiting = None if condition.status == "True" else POLL
    if claim is None:
        waiting = SOON  # some storage classes bind it, and so change it, only for the fetch Job
    return Outcome((condition,), facts, proceed=proceed, apply=apply, requeue_after=waiting)


def _deleted(context: Context, claim: Object) -> Outcome:
    """A claim in deletion: it stays until no pod uses it, so the ended Jobs are deleted.

    A deletion cannot be taken back.
    """
    model, observed, name = context.model, context.observed, claim["metadata"]["name"]
    ended = tuple(
        job.ref(item)
        for item, body in sorted(observed.jobs.items())
        if job.belongs(body, model) and job_state(body) != "Running" and not being_deleted(body)
    )
    pods = sorted(pod["metadata"]["name"] for pod in observed.workload_pods())
    message = f"claim {name} is being deleted, with all files of the resource"
    if pods:
        message += (
            f"; it exists until these pods end: {', '.join(pods)}: copy what you need from them, "
            "then set spec.suspend to true"
        )
    facts = replace(context.facts, volume=volume_of(model, observed))
    condition = Condition(Type.STORAGE_READY, "False", StorageReason.CLAIM_LOST, message)
    return Outcome((condition,), facts, proceed=False, delete=ended, requeue_after=POLL)


def volume_of(model: SpeculativeModel, observed: Observed) -> Volume:
    """The volume of the live claim, or of the claim that is being created."""
    name = names.claim_name(model)
    claim = observed.claim or {}
    modes = _modes(claim) or [model.access_mode]
    identity = claim.get("metadata", {}).get("uid", name)
    return Volume(name, identity, single_node="ReadWriteMany" not in modes)


def _modes(claim: Object | None) -> list[str]:
    """The access modes of a claim; empty if it does not exist."""
    modes: list[str] = (claim or {}).get("spec", {}).get("accessModes") or []
    return modes


def _size(model: SpeculativeModel, claim: Object | None) -> str | None:
    """The size to request: that of the spec, or the claim's present request if that is larger.

    A claim cannot shrink. Its request is larger after the size in the spec was lowered, or after
    someone else expanded the claim. After a failed expansion, Kubernetes accepts a lower request
    that is above the capacity.
    """
    size = model.spec.storage.size
    live = (claim or {}).get("spec", {}).get("resources", {}).get("requests", {}).get("storage")
    capacity = (claim or {}).get("status", {}).get("capacity", {}).get("storage")
    if live is None or not _less(size, live) or (capacity and _less(capacity, size)):
        return size
    return str(live)


def _less(left: str | None, right: str | None) -> bool:
    """Whether a quantity is less than another; False where either is no number."""
    left_amount, right_amount = amount(left), amount(right)
    if not (isinstance(left_amount, Decimal) and isinstance(right_amount, Decimal)):
        return False
    return left_amount < right_amount


def _judge(name: str, claim: Object | None) -> Condition:
    if claim is None:
        message = f"claim {name} is being created"
        return Condition(Type.STORAGE_READY, "False", StorageReason.CLAIM_PENDING, message)
    phase = claim.get("status", {}).get("phase", "Pending")
    spec = claim.get("spec", {})
    size = spec.get("resources", {}).get("requests", {}).get("storage", "?")
    modes = ", ".join(_modes(claim))
    if phase == "Bound":
        message = f"claim {name} is bound ({size}, {modes})"
        return Condition(Type.STORAGE_READY, "True", StorageReason.BOUND, message)
    if phase == "Lost":
        message = f"claim {name} lost its volume {spec.get('volumeName', '')}: restore the volume"
        return Condition(Type.STORAGE_READY, "False", StorageReason.CLAIM_LOST, message)
    kind = spec.get("storageClassName") or "the default"
    message = (
        f"claim {name} waits for a volume ({size}, {modes}, storage class {kind}); "
        f"its events have the reason: kubectl describe pvc {name}"
    )
    if "ReadWriteMany" in _modes(claim):
        message += "; many storage classes have no ReadWriteMany"
    return Condition(Type.STORAGE_READY, "False", StorageReason.CLAIM_PENDING, message)
