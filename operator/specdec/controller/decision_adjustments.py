"""Build the decision to report when a reconcile does not go as the pipeline decided.

`Reconciler` calls these pure functions before it writes the status. They report what the pipeline
cannot know: an invalid spec, an exception, and refused children.
"""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import ValidationError

from specdec import __version__
from specdec.api.conditions import FAILED, MEASURED, OPTIONAL, Condition, Type
from specdec.api.model import explain
from specdec.api.reasons import AcceptedReason, CommonReason, ReadyReason
from specdec.controller.refusals import MORE_RIGHTS, RefusedError
from specdec.controller.status_writer import Body
from specdec.pipeline.adjustments import with_condition, with_not_ready
from specdec.pipeline.decide import Decision


def internal_error(body: Body, location: str) -> Decision:
    """The decision to report after an unexpected exception.

    Only Ready changes. The other conditions keep their message and their observed generation,
    because nothing new is known about them. `location` is the exception's type and source line.
    """
    message = (
        f"operator {__version__} cannot reconcile this resource: {location} is a defect of the "
        "operator, whose log has the details; report it and use another release, or revert the "
        "last change of the spec"
    )
    return _only_not_ready(
        body, Condition(Type.READY, "False", ReadyReason.INTERNAL_ERROR, message)
    )


def rejected_request(body: Body, error: str) -> Decision:
    """The decision to report after the API server rejected a request that no child explains.

    Only Ready changes, as after an unexpected exception: nothing could be decided. Pods keep
    serving.
    """
    message = (
        f"the operator cannot reconcile this resource: {error}; if it lacks a right, "
        f"{MORE_RIGHTS}; it tries again every minute"
    )
    return _only_not_ready(body, Condition(Type.READY, "False", CommonReason.REJECTED, message))


def _only_not_ready(body: Body, condition: Condition) -> Decision:
    kept = {k: v for k, v in body.get("status", {}).items() if k != "conditions"}
    return Decision(conditions=(condition,), status={**kept, "phase": "Failed"}, partial=True)


def invalid_spec(body: Body, error: ValidationError) -> Decision:
    """The decision to report if the API server has accepted a spec that we cannot parse."""
    condition = Condition(Type.ACCEPTED, "False", AcceptedReason.INVALID_SPEC, explain(error))
    kept = {k: v for k, v in body.get("status", {}).items() if k != "conditions"}
    return Decision(conditions=with_not_ready([condition]), status={**kept, "phase": "Failed"})


def with_refusals(decision: Decision, refusals: Sequence[RefusedError]) -> Decision:
    """The decision with several refusals reported."""
    for error in refusals:
        decision = with_refusal(decision, error)
    return decision


def with_refusal(decision: Decision, error: RefusedError) -> Decision:
    """The decision with a refusal reported in the condition of the refused child.

    A refused measurement makes its condition Unknown and leaves Ready alone. A refused change of
    an existing claim only extends a message, because the claim works as before.
    """
    kind = error.condition_type
    if error.others_can_follow and kind == Type.STORAGE_READY:
        claim = next(c for c in decision.conditions if c.type == kind)
        message = f"{claim.message}; the claim stays as it is: {error}"
        return with_condition(decision, replace(claim, message=message))
    if kind in MEASURED:
        return with_condition(decision, Condition(kind, "Unknown", error.reason, str(error)))
    condition = Condition(kind, "False", error.reason, str(error))
    if kind in OPTIONAL:
        return with_condition(decision, condition)
    others = [c for c in decision.conditions if c.type not in (kind, Type.READY)]
    phase = "Failed" if error.reason in FAILED else decision.status.get("phase", "Failed")
    return replace(
        decision,
        conditions=with_not_ready([*others, condition]),
        status={**decision.status, "phase": phase},
    )
