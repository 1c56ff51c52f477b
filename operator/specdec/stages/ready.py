"""Ready and the phase: one line that says what is going on."""

from collections.abc import Sequence

from specdec.api.conditions import FAILED, OPTIONAL, Condition, Type
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
    """All stage conditions in the order of the pipeline; the unreached ones wait.

    Optional conditions follow where they were found.
    """
    by_type = {condition.type: condition for condition in found}
    first = next((t for t in _PHASES if t not in by_type or holds_back(by_type[t])), None)
    waiting = f"waits for {first}"
    stages = [by_type.get(t) or Condition(t, "Unknown", "Waiting", waiting) for t in _PHASES]
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
    first = next((c for c in stages if holds_back(c)), None)
    old = next(c for c in stages if c.type == Type.AVAILABLE)
    if first is None:
        return Condition(Type.READY, "True", "Serving", old.message)
    message = first.message
    if first.type != Type.AVAILABLE and old.status == "True":
        message += "; the previous revision still serves"
    return Condition(Type.READY, "False", first.reason, message)


def phase(stages: Sequence[Condition], ready: Condition) -> str:
    """One word for people and printer columns."""
    if ready.status == "True":
        return "Serving"
    if ready.reason == "Suspended":
        return "Suspended"
    first = next(c for c in stages if holds_back(c))
    return "Failed" if first.reason in FAILED else _PHASES[first.type]
