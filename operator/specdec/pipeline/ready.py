"""Ready and the phase: one line that says what is going on."""

from collections.abc import Sequence

from specdec.api.conditions import FAILED, MEASURED, OPTIONAL, VERIFIED, Condition, Type
from specdec.api.model import SpeculativeModel

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


def complete(found: Sequence[Condition]) -> list[Condition]:
    """All conditions but Ready in the order of the pipeline; the unreached ones wait.

    Optional conditions follow where they were found.
    """
    by_type = {condition.type: condition for condition in found}
    first = next((t for t in _PHASES if t not in by_type or holds_back(by_type[t])), None)
    waiting = f"waits for {first}"
    stages = [
        by_type.get(t) or Condition(t, "Unknown", "Waiting", waiting)
        for t in (*_PHASES, *MEASURED)
    ]
    return stages + [by_type[t] for t in Type if t in OPTIONAL and t in by_type]


def holds_back(condition: Condition) -> bool:
    """Whether Ready waits for it.

    An Unknown that a stage itself states is a word to people: the chain went on after it.
    """
    told = condition.status == "Unknown" and condition.reason != "Waiting"
    return condition.status != "True" and not told and condition.type not in OPTIONAL


def summary(model: SpeculativeModel, stages: Sequence[Condition]) -> Condition:
    """Ready: True when every stage is, else the first that is not, in its own words."""
    if model.spec.suspend:
        message = "spec.suspend is true: the pods are freed, engines and claim are kept"
        return Condition(Type.READY, "False", "Suspended", message)
    serving = next(c for c in stages if c.type == Type.AVAILABLE)
    first = _first(model, stages)
    if first is None:
        return Condition(Type.READY, "True", "Serving", serving.message)
    message = first.message
    if first.type in VERIFIED:
        message += "; spec.verification.mode Gate holds Ready"
    elif first.type != Type.AVAILABLE and serving.status == "True":
        message += "; the previous revision still serves"
    return Condition(Type.READY, "False", first.reason, message)


def phase(model: SpeculativeModel, stages: Sequence[Condition], ready: Condition) -> str:
    """One word for people and printer columns."""
    if ready.status == "True":
        return "Serving"
    if ready.reason == "Suspended":
        return "Suspended"
    first = _first(model, stages)
    if first is None or first.reason in FAILED:
        return "Failed"
    if first.type in VERIFIED:
        return "Failed" if first.status == "False" else "Verifying"
    return _PHASES[first.type]


def _first(model: SpeculativeModel, stages: Sequence[Condition]) -> Condition | None:
    """The first condition that holds Ready back: what was measured does behind a gate alone."""
    held = [c for c in stages if c.type in _PHASES and holds_back(c)]
    if model.spec.verification.mode == "Gate":
        held += [c for c in stages if c.type in VERIFIED and _fails(c)]
    return held[0] if held else None


def _fails(condition: Condition) -> bool:
    """Whether a measurement is not there yet, or not good; what no client can see does not."""
    return condition.status != "True" and condition.reason != "NotComparable"
