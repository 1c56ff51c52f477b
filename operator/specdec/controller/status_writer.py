"""Write the outcome into the resource: status once and only when it changed, then events."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from specdec import __version__
from specdec.api.conditions import (
    FAILED,
    MEASURED,
    OPTIONAL,
    Condition,
    Transition,
    Type,
    merge,
    transitions,
)
from specdec.api.model import explain
from specdec.api.text import LIMIT, bounded, cut
from specdec.cluster import Cluster, ClusterError, Rejected
from specdec.controller.apply import RefusedError
from specdec.pipeline import ready
from specdec.pipeline.decide import Decision
from specdec.pipeline.stage import POLL

logger = logging.getLogger(__name__)

Body = Mapping[str, Any]
# What the API server answers to an object that its schema or its size limit refuses.
_INVALID = frozenset({400, 413, 422})
_SHORT = "the API server rejected the full status: read the operator's log for the message"


async def report(cluster: Cluster, body: Body, decision: Decision) -> Body | None:
    """Apply the status of a decision and record its transitions; raises ClusterError.

    Returns the resource as written, None when nothing was to be written or it is gone. Events
    come after the status: a crash in between loses an event instead of repeating it for ever.
    """
    old = body.get("status", {})
    new = status_of(body, decision, datetime.now(UTC))
    if new == old:
        return None
    meta = body["metadata"]
    identity = {key: meta[key] for key in ("name", "namespace", "uid")}
    head = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": identity}
    try:
        written = await cluster.apply_status({**head, "status": new})
    except Rejected as error:
        if error.code not in _INVALID:
            raise
        new = short(old, new)
        if new == old:
            return None
        logger.error("%s/%s: %s; a short status takes its place", *_key(body), error)  # noqa: TRY400
        written = await cluster.apply_status({**head, "status": new})
    if written is not None:
        log_whole(body, decision.conditions)
        for transition in news(old.get("conditions", []), decision.conditions):
            await tell(cluster, body, transition)
    return written


def short(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A status that the API server takes where it refuses the whole one.

    It has the reasons of the new conditions, and every result of the old status, which it took.
    """
    return {
        **{key: value for key, value in old.items() if key != "conditions"},
        "phase": new.get("phase", "Failed"),
        "observedGeneration": new["observedGeneration"],
        "conditions": [{**item, "message": _SHORT} for item in new["conditions"]],
    }


def log_whole(body: Body, conditions: Sequence[Condition]) -> None:
    """Log each message that the status holds in part."""
    for condition in conditions:
        if len(condition.message) > LIMIT:
            said = (condition.type, condition.message)
            logger.info("%s/%s: the whole message of %s: %s", *_key(body), *said)


def _key(body: Body) -> tuple[str, str]:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def news(old: Sequence[Mapping[str, Any]], new: Sequence[Condition]) -> list[Transition]:
    """The transitions worth telling: of Ready only becoming True and ceasing to be.

    Otherwise Ready repeats the stage that is not done, whose own transition was told already. A
    defect of the operator has no stage.
    """
    ready_before = any(c["type"] == Type.READY and c["status"] == "True" for c in old)
    return [
        transition
        for transition in transitions(old, new)
        if transition.condition.type != Type.READY
        or transition.condition.reason == "InternalError"
        or (transition.condition.status == "True") != ready_before
    ]


async def tell(cluster: Cluster, body: Body, transition: Transition) -> None:
    """One log line and one event; an event that cannot be written fails nothing."""
    told, meta = transition.condition, body["metadata"]
    logger.log(
        logging.WARNING if transition.warning else logging.INFO,
        "%s is %s (%s): %s",
        *(told.type, told.status, told.reason, cut(told.message)),
        extra={"resource": f"{meta['namespace']}/{meta['name']}"},
    )
    try:
        await cluster.record_event(body, transition)
    except ClusterError as error:
        logger.warning("an event of %s/%s is lost: %s", meta["namespace"], meta["name"], error)


def status_of(body: Body, decision: Decision, now: datetime) -> dict[str, Any]:
    """The whole status to write; equal to the old one when nothing but time has passed."""
    generation = body["metadata"].get("generation", 1)
    old = body.get("status", {}).get("conditions", [])
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    stated = {condition.type for condition in decision.conditions}
    kept = [item for item in old if item["type"] not in stated] if decision.partial else []
    return {
        **bounded(dict(decision.status)),
        "observedGeneration": generation,
        "conditions": [*kept, *merge(old, decision.conditions, generation, stamp)],
    }


def broken(body: Body, place: str) -> Decision:
    """The status of a resource whose reconcile raised an exception that no policy expects.

    Every other condition keeps its generation and its message: nothing new is known of it.
    `place` is the exception's type and line.
    """
    message = (
        f"operator {__version__} cannot reconcile this resource: {place} is a defect of the "
        "operator, whose log has the details; report it and use another release, or revert the "
        "last change of the spec"
    )
    ready = Condition(Type.READY, "False", "InternalError", message)
    kept = {k: v for k, v in body.get("status", {}).items() if k != "conditions"}
    return Decision(conditions=(ready,), status={**kept, "phase": "Failed"}, partial=True)


def invalid(body: Body, error: ValidationError) -> Decision:
    """What to say of a spec that the API server took and we cannot read."""
    bad = Condition(Type.ACCEPTED, "False", "InvalidSpec", explain(error))
    kept = {k: v for k, v in body.get("status", {}).items() if k != "conditions"}
    return Decision(conditions=summed([bad]), status={**kept, "phase": "Failed"})


def refused(decision: Decision, error: RefusedError) -> Decision:
    """The decision with the server's refusal in the condition that it belongs to.

    What cannot be measured is not known, and does not keep a service from being Ready. A claim
    that cannot be changed is as good as before: its condition only says so.
    """
    if error.stands and error.stage == Type.STORAGE_READY:
        claim = next(c for c in decision.conditions if c.type == error.stage)
        message = f"{claim.message}; the claim stays as it is: {error}"
        return _with(decision, replace(claim, message=message))
    if error.stage in MEASURED:
        return _with(decision, Condition(error.stage, "Unknown", error.reason, str(error)))
    bad = Condition(error.stage, "False", error.reason, str(error))
    if error.stage in OPTIONAL:
        return _with(decision, bad)
    stages = [c for c in decision.conditions if c.type not in (error.stage, Type.READY)]
    phase = "Failed" if error.reason in FAILED else decision.status.get("phase", "Failed")
    return replace(
        decision,
        conditions=summed([*stages, bad]),
        status={**decision.status, "phase": phase},
    )


def without(decision: Decision, missed: Sequence[RefusedError]) -> Decision:
    """The decision with refusals that stopped nothing in the conditions that they belong to."""
    for error in missed:
        decision = refused(decision, error)
    return decision


def rolling(decision: Decision, names: Sequence[str]) -> Decision:
    """The decision with Available about the pods that are to come, where any are.

    It judged what it read, before the change; the next event shows the new generation.
    """
    available = [c for c in decision.conditions if c.type == Type.AVAILABLE]
    if not names or not available or available[0].status != "True":
        return decision
    (before,) = available
    message = f"{', '.join(names)} replaces its pods; until then {before.message}"
    starting = Condition(Type.AVAILABLE, "False", "Starting", message)
    stages = [starting if c.type == Type.AVAILABLE else c for c in decision.conditions]
    conditions = summed([c for c in stages if c.type != Type.READY])
    status = {**decision.status, "phase": "Starting"}
    return replace(decision, conditions=conditions, status=status, requeue_after=POLL)


def _with(decision: Decision, condition: Condition) -> Decision:
    """The decision with another condition of a type that it has."""
    conditions = (condition if c.type == condition.type else c for c in decision.conditions)
    return replace(decision, conditions=tuple(conditions))


def summed(found: Sequence[Condition]) -> tuple[Condition, ...]:
    """All conditions with Ready in the words of the first that holds it back."""
    stages = ready.complete(found)
    first = next(c for c in stages if ready.holds_back(c))
    return (*stages, Condition(Type.READY, "False", first.reason, first.message))
