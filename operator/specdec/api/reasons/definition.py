"""The definition of a condition reason: severity, conditions, meaning and resolution."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from specdec.api.condition_types import OPTIONAL, Type


class Severity(StrEnum):
    """Whether a reason reports progress, a blocked stage or a failure."""

    # Reports a state; nothing is wrong.
    PROGRESS = "progress"
    # Can pass by itself, or after a change elsewhere in the cluster: a warning, not a failure.
    BLOCKED = "blocked"
    # Stays until someone acts: changes the resource, a checkpoint or a quota, or deletes the
    # failed Job.
    FAILED = "failed"


class Health(StrEnum):
    """What Argo CD reports of a resource."""

    HEALTHY = "Healthy"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    SUSPENDED = "Suspended"


@dataclass(frozen=True)
class Definition:
    """All that is known of one reason; `resolution` is empty where nothing is to be done."""

    text: str
    severity: Severity
    types: tuple[Type, ...]
    meaning: str
    resolution: str
    health: Health | None


class Reason(StrEnum):
    """A condition reason. The reasons of each stage are the members of a subclass.

    Its text is a CamelCase word of the API. `meaning` and `resolution` are the Markdown of
    docs/conditions.md. `types` are the conditions that can have the reason; docs/conditions.md
    lists it under the first of them, or under "Any condition" if all can have it. `Ready` is in
    `types` only for its own reasons, and for the reasons that any condition can have. It may also
    repeat the reason of the condition that blocks it.
    """

    severity: Severity
    types: tuple[Type, ...]
    meaning: str
    resolution: str
    health: Health | None

    def __new__(cls, definition: Definition) -> Self:
        """Return a member whose value is the text, with the definition in its attributes."""
        member = str.__new__(cls, definition.text)
        member._value_ = definition.text
        member.severity = definition.severity
        member.types = definition.types
        member.meaning = definition.meaning
        member.resolution = definition.resolution
        member.health = definition.health or _derived(definition)
        return member


def _derived(definition: Definition) -> Health | None:
    """What Argo CD reports if `Ready` is False with a reason; None if it never blocks Ready."""
    if OPTIONAL.issuperset(definition.types):
        return None
    progress = definition.severity is Severity.PROGRESS
    return Health.PROGRESSING if progress else Health.DEGRADED


class Section:
    """Defines the reasons of one or more condition types; `also` adds types to a single reason."""

    def __init__(self, *types: Type) -> None:
        self.types = types

    def progress(
        self,
        text: str,
        meaning: str,
        resolution: str = "",
        *,
        also: tuple[Type, ...] = (),
        health: Health | None = None,
    ) -> Definition:
        """Define a reason that reports a state."""
        return Definition(
            text, Severity.PROGRESS, (*self.types, *also), meaning, resolution, health
        )

    def blocked(
        self,
        text: str,
        meaning: str,
        resolution: str,
        *,
        also: tuple[Type, ...] = (),
        health: Health | None = None,
    ) -> Definition:
        """Define a reason that can pass without a change of the resource.

        Argo CD reports it as Degraded. With `health=Health.PROGRESSING` Argo CD waits instead,
        because the operator, the cluster or another resource of the same sync may resolve the
        reason.
        """
        return Definition(
            text, Severity.BLOCKED, (*self.types, *also), meaning, resolution, health
        )

    def failed(
        self,
        text: str,
        meaning: str,
        resolution: str,
        *,
        also: tuple[Type, ...] = (),
    ) -> Definition:
        """Define a reason that stays until someone acts."""
        return Definition(text, Severity.FAILED, (*self.types, *also), meaning, resolution, None)
