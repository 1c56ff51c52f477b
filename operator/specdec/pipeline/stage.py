"""What every stage takes and gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.api.conditions import Condition
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Facts, Images
from specdec.pipeline.observed import Object, Observed, Ref

# How soon (seconds) to look again while a Job, pod or claim is under way: pods are not watched.
POLL = 5.0


@dataclass(frozen=True)
class Context:
    """Input of a stage."""

    model: SpeculativeModel
    observed: Observed
    images: Images
    facts: Facts = field(default_factory=Facts)


@dataclass(frozen=True)
class Outcome:
    """Output of a stage.

    `proceed` lets the chain go on; `facts` are those of the next stage; `status` is merged into
    the resource's status; `requeue_after` (seconds) asks for another look when no event will come.
    """

    conditions: tuple[Condition, ...]
    facts: Facts
    proceed: bool
    apply: tuple[Object, ...] = ()
    delete: tuple[Ref, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    requeue_after: float | None = None


Stage = Callable[[Context], Outcome]
