"""StorageReady: the one claim all later stages work on."""

from dataclasses import replace

from specdec.api import names
from specdec.api.conditions import Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.desired import storage as desired
from specdec.desired.pod import Volume
from specdec.observed import Object, Observed
from specdec.stages.stage import POLL, Context, Outcome


def storage(context: Context) -> Outcome:
    """Want the claim (or find the user's), and say whether a volume is bound to it.

    A pending claim does not stop the chain: with a storage class that waits for its first
    consumer, the fetch pod is what gets it bound.
    """
    model, claim = context.model, context.observed.claim
    name = names.claim_name(model)
    own = model.spec.storage.existing_claim is None
    apply = (desired.claim(model),) if own else ()
    facts = replace(context.facts, volume=volume_of(model, context.observed))
    if claim is None and not own:
        missing = Condition(
            Type.STORAGE_READY,
            "False",
            "ClaimNotFound",
            f"claim {name} (spec.storage.existingClaim) does not exist in namespace "
            f"{model.metadata.namespace}: create it, or correct the name",
        )
        return Outcome((missing,), facts, proceed=False, retry_after=POLL)
    condition = _judge(name, claim)
    # Nothing may be asked of a claim that is not there: its uid tells volumes apart.
    proceed = claim is not None and condition.reason != "ClaimLost"
    waiting = None if condition.status == "True" else POLL
    return Outcome((condition,), facts, proceed=proceed, apply=apply, retry_after=waiting)


def volume_of(model: SpeculativeModel, observed: Observed) -> Volume:
    """The claim with what is known of it live."""
    name = names.claim_name(model)
    claim = observed.claim or {}
    modes = claim.get("spec", {}).get("accessModes") or [model.spec.storage.access_mode]
    identity = claim.get("metadata", {}).get("uid", name)
    return Volume(name, identity, single_node="ReadWriteMany" not in modes)


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
