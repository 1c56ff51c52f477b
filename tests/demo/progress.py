"""Conditions as lines: one for each change of status or reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_WAITING = "Waiting"
# Measured together by one Job: while it is under way the first stands for all.
_VERIFIED = ("SpeculationActive", "OutputEquivalent", "SpeculationEffective")
_QUIET = (*_VERIFIED[1:], "BenchmarkCompleted")
_UNDER_WAY = ("Queued", "Stale", "Verifying", _WAITING)


@dataclass(frozen=True)
class Step:
    """A condition that changed."""

    type: str
    status: str
    reason: str
    message: str


@dataclass
class Progress:
    """Remembers what was shown, so that each change is shown once."""

    shown: dict[str, tuple[str, str]] = field(default_factory=dict)

    def changes(self, model: Mapping[str, Any]) -> list[Step]:
        """The new conditions of a resource since the last call, without those of an old spec."""
        if not _is_current(model):
            return []
        steps = []
        for condition in model["status"].get("conditions", []):
            step = Step(
                condition["type"],
                condition["status"],
                condition["reason"],
                condition.get("message", ""),
            )
            # Until all is done Ready repeats another condition.
            quiet = step.reason == _WAITING or (step.type == "Ready" and step.status != "True")
            unknown = step.type in _QUIET and step.status == "Unknown"
            if (
                not quiet
                and not unknown
                and self.shown.get(step.type) != (step.status, step.reason)
            ):
                self.shown[step.type] = (step.status, step.reason)
                steps.append(step)
        return steps


def is_ready(model: Mapping[str, Any]) -> bool:
    """Whether the resource as it stands now, not an older generation, is served."""
    conditions = model.get("status", {}).get("conditions", [])
    return _is_current(model) and any(
        c["type"] == "Ready" and c["status"] == "True" for c in conditions
    )


def is_verified(model: Mapping[str, Any]) -> bool:
    """Whether what serves was measured, whatever came out."""
    conditions = model.get("status", {}).get("conditions", [])
    reasons = [c["reason"] for c in conditions if c["type"] in _VERIFIED]
    return _is_current(model) and bool(reasons) and not set(reasons) & set(_UNDER_WAY)


def has_failed(model: Mapping[str, Any]) -> bool:
    """Whether the resource waits for a change by the user."""
    return _is_current(model) and model["status"].get("phase") == "Failed"


def _is_current(model: Mapping[str, Any]) -> bool:
    observed = model.get("status", {}).get("observedGeneration")
    return bool(observed == model["metadata"]["generation"])


def why_not(model: Mapping[str, Any] | None) -> str:
    """One sentence about what keeps a resource from being served."""
    conditions = (model or {}).get("status", {}).get("conditions", [])
    for condition in conditions:
        if condition["status"] != "True":
            return f"{condition['type']} is {condition['reason']}: {condition.get('message', '')}"
    return "the operator has not reconciled it; see its log"
