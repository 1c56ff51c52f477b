"""The input and output of every stage."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.api.cause import Cause
from specdec.api.conditions import Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Facts, Images
from specdec.pipeline.observed import Object, Observed, Ref

# Seconds until the next reconcile while a Job, pod or claim is in progress. Watches report their
# changes; only their logs and events have to be read again.
POLL = 15.0
# Seconds until a reconcile that will know more. The status waits for it too.
SOON = 0.5


@dataclass(frozen=True)
class Context:
    """Input of a stage: the resource, the snapshot of the cluster, and earlier stages' facts."""

    model: SpeculativeModel
    observed: Observed
    images: Images
    facts: Facts = field(default_factory=Facts)


@dataclass(frozen=True)
class Outcome:
    """Output of a stage.

    Attributes:
        conditions: what the stage reports.
        facts: the input of the next stage.
        proceed: whether the chain continues with the next stage.
        apply: desired objects, in the order in which they are applied.
        delete: objects to delete.
        delete_last: objects to delete once the status reports what they show.
        status: fields that are merged into the resource's status.
        requeue_after: seconds until the next reconcile; None where a watch event is enough.
        model: the resource for later stages; None if it is unchanged.
    """

    conditions: tuple[Condition, ...]
    facts: Facts
    proceed: bool
    apply: tuple[Object, ...] = ()
    delete: tuple[Ref, ...] = ()
    delete_last: tuple[Ref, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    requeue_after: float | None = None
    model: SpeculativeModel | None = None


Stage = Callable[[Context], Outcome]


def stopped(
    kind: Type,
    facts: Facts,
    cause: Cause,
    apply: tuple[Object, ...] = (),
    delete: tuple[Ref, ...] = (),
    requeue_after: float | None = POLL,
) -> Outcome:
    """The outcome of a stage that is not done: its condition is False and the chain stops."""
    condition = Condition(kind, "False", cause.reason, cause.message)
    return Outcome((condition,), facts, False, apply, delete, requeue_after=requeue_after)
