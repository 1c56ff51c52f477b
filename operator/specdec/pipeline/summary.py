"""The summary of all conditions: the condition Ready and the phase."""

from collections.abc import Mapping, Sequence
from typing import Any

from specdec.api.conditions import FAILED, MEASURED, OPTIONAL, VERIFIED, Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import (
    AvailableReason,
    CommonReason,
    ReadyReason,
    StorageReason,
    VerificationReason,
)

# The phase while a condition blocks Ready, in the order of the pipeline.
_PHASES = {
    Type.ACCEPTED: "Failed",
    Type.STORAGE_READY: "Pending",
    Type.MODELS_FETCHED: "Fetching",
    Type.COMPATIBLE: "Checking",
    Type.MEMORY_FITS: "Checking",
    Type.ENGINES_READY: "Building",
    Type.REPOSITORY_READY: "Publishing",
    Type.AVAILABLE: "Starting",
}
# Which revision serves, by whether it is the desired one.
_REVISIONS = {True: "desired", False: "previous", None: "deployed"}


def complete(reported: Sequence[Condition]) -> list[Condition]:
    """All conditions but Ready in the order of the pipeline; those not reported are Waiting.

    Optional conditions come last, where they were reported.
    """
    by_type = {condition.type: condition for condition in reported}
    first = next((t for t in _PHASES if t not in by_type or holds_back(by_type[t])), None)
    stages = [
        by_type.get(t) or Condition(t, "Unknown", CommonReason.WAITING, f"waits for {first}")
        for t in (*_PHASES, *MEASURED)
    ]
    return stages + [by_type[t] for t in Type if t in OPTIONAL and t in by_type]


def holds_back(condition: Condition) -> bool:
    """Whether a condition blocks Ready.

    A condition that is Unknown does not block it: its stage could not decide, and let the chain
    continue. Only Unknown with the reason Waiting blocks it, because the stage has not run.
    """
    informs = condition.status == "Unknown" and condition.reason != CommonReason.WAITING
    return condition.status != "True" and not informs and condition.type not in OPTIONAL


def ready(
    model: SpeculativeModel, stages: Sequence[Condition], *, serves_desired: bool | None = None
) -> Condition:
    """The condition Ready: True, or with reason and message of the first condition that blocks.

    `serves_desired` is whether the live servers already have the desired repository, as while its
    files are checked or restored. It is None if the chain stopped before this repository is known.
    """
    available = next(c for c in stages if c.type == Type.AVAILABLE)
    if available.reason == AvailableReason.STOPPING:
        return Condition(Type.READY, "False", available.reason, available.message)
    if model.spec.suspend:
        message = f"spec.suspend is true: the pods are deleted, {_kept(stages)}"
        return Condition(Type.READY, "False", ReadyReason.SUSPENDED, message)
    first = _first(model, stages)
    if first is None:
        return Condition(Type.READY, "True", ReadyReason.SERVING, available.message)
    message = first.message
    if first.type in VERIFIED:
        message += "; this blocks Ready because spec.verification.mode is Gate"
    elif first.type != Type.AVAILABLE and available.status == "True":
        message += f"; the {_REVISIONS[serves_desired]} revision still serves"
    return Condition(Type.READY, "False", first.reason, message)


def _kept(stages: Sequence[Condition]) -> str:
    """What stays of a suspended resource."""
    storage = next(c for c in stages if c.type == Type.STORAGE_READY)
    if storage.reason == StorageReason.CLAIM_LOST:
        return f"but the engines are not kept: {storage.message}"
    built = any(c.type == Type.ENGINES_READY and c.status == "True" for c in stages)
    return "engines and claim are kept" if built else "the claim is kept"


def phase(model: SpeculativeModel, stages: Sequence[Condition], ready_: Condition) -> str:
    """The value of `status.phase`, for people and printer columns."""
    if ready_.status == "True":
        return "Serving"
    if ready_.reason == ReadyReason.SUSPENDED:
        return "Suspended"
    first = _first(model, stages)
    if first is None or first.reason in FAILED:
        return "Failed"
    if first.type in VERIFIED:
        return "Failed" if first.status == "False" else "Verifying"
    return _PHASES[first.type]


def _first(model: SpeculativeModel, stages: Sequence[Condition]) -> Condition | None:
    """The first condition that blocks Ready. Those of the verification block only in mode Gate."""
    blocking = [c for c in stages if c.type in _PHASES and holds_back(c)]
    if model.spec.verification.mode == "Gate":
        blocking += [c for c in stages if c.type in VERIFIED and _closes_gate(c)]
    return blocking[0] if blocking else None


def _closes_gate(condition: Condition) -> bool:
    """Whether a condition of the verification blocks Ready.

    A condition that cannot be measured does not block it.
    """
    return condition.status != "True" and condition.reason != VerificationReason.NOT_COMPARABLE


def columns(model: SpeculativeModel, status: Mapping[str, Any]) -> dict[str, str]:
    """The texts of the columns of `kubectl get`, which prints fields as they are.

    A column without a measurement has no text, nor has one of a service without pods.

    Args:
        model: the resource.
        status: the status that is written together with the texts.
    """
    desired = 0 if model.spec.suspend else model.spec.serving.replicas
    measured = status.get("speculation", {}) if desired else {}
    acceptance, speed = measured.get("acceptancePercent"), measured.get("speedupPercent")
    texts = {
        "ready": f"{status.get('readyReplicas', 0)}/{desired}",
        "acceptance": None if acceptance is None else f"{acceptance}%",
        "speed": None if speed is None else f"{speed / 100:.2f}x",
    }
    return {name: text for name, text in texts.items() if text is not None}
