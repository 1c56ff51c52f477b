"""Replace conditions of a decision."""

from collections.abc import Sequence
from dataclasses import replace

from specdec.api.conditions import Condition, Type
from specdec.api.reasons import AvailableReason
from specdec.pipeline import summary
from specdec.pipeline.decide import Decision
from specdec.pipeline.stage import POLL


def with_replaced_pods(decision: Decision, children: Sequence[str]) -> Decision:
    """The decision with Available=False while the given children replace their pods.

    The pipeline judged the pods as they were before the children changed. Without this function,
    the new generation would be reported as available until the next event.
    """
    available = next((c for c in decision.conditions if c.type == Type.AVAILABLE), None)
    if not children or available is None or available.status != "True":
        return decision
    message = f"{', '.join(children)} replaces its pods; before that: {available.message}"
    starting = Condition(Type.AVAILABLE, "False", AvailableReason.STARTING, message)
    replaced = with_condition(decision, starting)
    conditions = with_not_ready([c for c in replaced.conditions if c.type != Type.READY])
    status = {**decision.status, "phase": "Starting"}
    return replace(decision, conditions=conditions, status=status, requeue_after=POLL)


def with_condition(decision: Decision, condition: Condition) -> Decision:
    """The decision with the condition of this type replaced."""
    conditions = (condition if c.type == condition.type else c for c in decision.conditions)
    return replace(decision, conditions=tuple(conditions))


def with_not_ready(stages: Sequence[Condition]) -> tuple[Condition, ...]:
    """All conditions and Ready=False, with the reason of the first condition that blocks Ready."""
    complete = summary.complete(stages)
    first = next(c for c in complete if summary.holds_back(c))
    return (*complete, Condition(Type.READY, "False", first.reason, first.message))
