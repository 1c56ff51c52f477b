"""Conditions: what a stage reports, and how it is merged into the conditions of the status."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specdec.api.condition_types import MEASURED, OPTIONAL, VERIFIED, Type
from specdec.api.reasons import Reason, Severity, having
from specdec.api.text import cut, line

__all__ = [
    "BLOCKED",
    "FAILED",
    "MEASURED",
    "OPTIONAL",
    "PROBLEMS",
    "PROGRESS",
    "VERIFIED",
    "Condition",
    "Status",
    "Transition",
    "Type",
    "merge",
    "transitions",
]

Status = Literal["True", "False", "Unknown"]
PROGRESS = having(Severity.PROGRESS)
BLOCKED = having(Severity.BLOCKED)
FAILED = having(Severity.FAILED)
# Each of these becomes a Warning event.
PROBLEMS = BLOCKED | FAILED


@dataclass(frozen=True)
class Condition:
    """One condition of the status; `message` is one line of plain text."""

    type: Type
    status: Status
    reason: Reason
    message: str = ""

    def __post_init__(self) -> None:
        """Escape the message: parts of it come from pods and servers that are not trusted."""
        object.__setattr__(self, "message", line(self.message))


@dataclass(frozen=True)
class Transition:
    """A condition whose status or reason changed; it can become one event."""

    condition: Condition
    warning: bool


def merge(
    old: Iterable[Mapping[str, Any]], new: Iterable[Condition], generation: int, now: str
) -> list[dict[str, Any]]:
    """Return the condition list to write.

    `lastTransitionTime` changes only when the status of a condition changes. Messages are cut:
    the API server rejects the whole status if one exceeds the limit of the schema.

    Args:
        old: the conditions of the present status.
        new: the conditions to write.
        generation: the `observedGeneration` of every entry.
        now: an RFC 3339 time.
    """
    before = {item["type"]: item for item in old}
    merged = []
    for condition in new:
        last = before.get(condition.type, {})
        same = last.get("status") == condition.status and "lastTransitionTime" in last
        merged.append(
            {
                "type": str(condition.type),
                "status": condition.status,
                "reason": str(condition.reason),
                "message": cut(condition.message),
                "observedGeneration": generation,
                "lastTransitionTime": last["lastTransitionTime"] if same else now,
            }
        )
    return merged


def transitions(old: Iterable[Mapping[str, Any]], new: Iterable[Condition]) -> list[Transition]:
    """Return the changes that can become events: a new status, or a new reason.

    The status writer leaves out changes of `Ready` that repeat another condition. A reason of
    `PROBLEMS` makes the event a warning. A condition whose status is Unknown becomes an event only
    with such a reason.
    """
    before = {item["type"]: (item["status"], item["reason"]) for item in old}
    changed = [c for c in new if before.get(c.type) != (c.status, c.reason)]
    reported = (c for c in changed if c.status != "Unknown" or c.reason in PROBLEMS)
    return [Transition(c, c.reason in PROBLEMS) for c in reported]
