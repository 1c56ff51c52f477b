"""The conditions that the demo shows: one line for each change of status or reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_WAITING = "Waiting"
# One Job measures all three. While it runs, the demo shows only the first condition.
_VERIFIED = ("SpeculationActive", "OutputEquivalent", "SpeculationEffective")
_BENCHMARK = "BenchmarkCompleted"
_QUIET = (*_VERIFIED[1:], _BENCHMARK)
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
    """Remembers the shown conditions, so that each change is shown once."""

    shown: dict[str, tuple[str, str]] = field(default_factory=dict)

    def changes(self, model: Mapping[str, Any]) -> list[Step]:
        """Return the conditions that changed since the last call; none of an older generation."""
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
            # Until it is True, Ready repeats another condition.
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
    """Return whether the current generation of the resource is served."""
    conditions = model.get("status", {}).get("conditions", [])
    return _is_current(model) and any(
        c["type"] == "Ready" and c["status"] == "True" for c in conditions
    )


def is_verified(model: Mapping[str, Any]) -> bool:
    """Return whether the verification of the current generation has ended, with any result."""
    conditions = model.get("status", {}).get("conditions", [])
    reasons = [c["reason"] for c in conditions if c["type"] in _VERIFIED]
    return _is_current(model) and bool(reasons) and not set(reasons) & set(_UNDER_WAY)


def is_measured(model: Mapping[str, Any]) -> bool:
    """Return whether the benchmark of the current generation has ended, with any result."""
    reasons = [
        condition["reason"]
        for condition in model.get("status", {}).get("conditions", [])
        if condition["type"] == _BENCHMARK and condition["status"] != "Unknown"
    ]
    return _is_current(model) and bool(reasons)


def has_failed(model: Mapping[str, Any]) -> bool:
    """Return whether the resource failed and needs a change by the user."""
    return _is_current(model) and model["status"].get("phase") == "Failed"


def _is_current(model: Mapping[str, Any]) -> bool:
    observed = model.get("status", {}).get("observedGeneration")
    return bool(observed == model["metadata"]["generation"])


def why_not(model: Mapping[str, Any] | None) -> str:
    """Return one sentence with the reason why a resource is not served."""
    conditions = (model or {}).get("status", {}).get("conditions", [])
    for condition in conditions:
        if condition["status"] != "True":
            return f"{condition['type']} is {condition['reason']}: {condition.get('message', '')}"
    return "the operator has not reconciled it; see its log"
