"""Write a decision into the status of a resource, and record its transitions as events.

`Reconciler` calls `write_status` once per reconcile. An unchanged status causes no write. If the
API server refuses a status as invalid or too large, a shorter one is written instead.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from specdec.api.condition_types import MEASURED
from specdec.api.conditions import Condition, Transition, Type, merge, transitions
from specdec.api.reasons import ReadyReason
from specdec.api.text import LIMIT, bounded, cut
from specdec.cluster import Cluster, ClusterError, Rejected
from specdec.pipeline.decide import Decision

logger = logging.getLogger(__name__)

Body = Mapping[str, Any]
# The HTTP statuses for an object that its schema or its size limit does not allow.
_INVALID = frozenset({400, 413, 422})
_SHORT_MESSAGE = "the API server rejected the full status: read the operator's log for the message"


async def write_status(cluster: Cluster, body: Body, decision: Decision) -> Body | None:
    """Apply the status of a decision if it changes, then record events.

    Events are recorded after the status. A crash between the two loses an event. In the other
    order, each retry could record the same event again.

    Returns:
        The resource as stored; None if nothing changes or the resource was deleted.

    Raises:
        ClusterError: the status could not be written.
    """
    old = body.get("status", {})
    new = desired_status(body, decision, datetime.now(UTC))
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
        new = _shortened(old, new)
        if new == old:
            return None
        logger.error("%s/%s: %s; writing a shorter status", *_key(body), error)  # noqa: TRY400
        written = await cluster.apply_status({**head, "status": new})
    if written is not None:
        _log_long_messages(body, decision.conditions)
        before = old.get("conditions", [])
        for transition in _transitions_to_report(before, decision.conditions):
            _log(body, transition)
            if _deserves_event(before, transition):
                await _record(cluster, body, transition)
    return written


def changes_status(body: Body, decision: Decision) -> bool:
    """Whether `write_status` writes."""
    return bool(desired_status(body, decision, datetime.now(UTC)) != body.get("status", {}))


def is_progress(body: Body, decision: Decision) -> bool:
    """Whether a decision changes only reasons and messages of conditions that stay False.

    A reason that reports a problem is no progress, nor is a deletion that waits for the status.
    """
    meta, status = body["metadata"], body.get("status", {})
    old = {c["type"]: c["status"] for c in status.get("conditions", [])}
    return (
        not decision.delete_last
        and changes_status(body, decision)
        and status.get("observedGeneration") == meta.get("generation", 1)
        and old == {c.type: c.status for c in decision.conditions}
        and not any(t.warning for t in transitions(status["conditions"], decision.conditions))
    )


def desired_status(body: Body, decision: Decision, now: datetime) -> dict[str, Any]:
    """The whole status to write; equal to the old one if nothing but time has changed."""
    generation = body["metadata"].get("generation", 1)
    old = body.get("status", {}).get("conditions", [])
    timestamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    decided = {condition.type for condition in decision.conditions}
    kept = [item for item in old if item["type"] not in decided] if decision.partial else []
    return {
        **bounded(dict(decision.status)),
        "observedGeneration": generation,
        "conditions": [*kept, *merge(old, decision.conditions, generation, timestamp)],
    }


def _shortened(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A status that the API server accepts in place of one that it refuses.

    It has the new conditions with a fixed message, and all other fields of the old status, which
    the server has accepted before.
    """
    return {
        **{key: value for key, value in old.items() if key != "conditions"},
        "phase": new.get("phase", "Failed"),
        "observedGeneration": new["observedGeneration"],
        "conditions": [{**item, "message": _SHORT_MESSAGE} for item in new["conditions"]],
    }


def _log_long_messages(body: Body, conditions: Sequence[Condition]) -> None:
    """Log the messages that are cut in the status."""
    for condition in conditions:
        if len(condition.message) > LIMIT:
            values = (condition.type, condition.message)
            logger.info("%s/%s: full message of %s: %s", *_key(body), *values)


def _key(body: Body) -> tuple[str, str]:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _transitions_to_report(
    old: Sequence[Mapping[str, Any]], new: Sequence[Condition]
) -> list[Transition]:
    """The transitions that deserve a log line.

    Ready gets one only when it changes to or from True, and for an internal error. Its other
    changes repeat the transition of another condition.
    """
    was_ready = any(c["type"] == Type.READY and c["status"] == "True" for c in old)
    return [
        transition
        for transition in transitions(old, new)
        if transition.condition.type != Type.READY
        or transition.condition.reason == ReadyReason.INTERNAL_ERROR
        or (transition.condition.status == "True") != was_ready
    ]


def _deserves_event(old: Sequence[Mapping[str, Any]], transition: Transition) -> bool:
    """Whether a transition is a problem, a measurement, or the end of what was not done before.

    Progress has no event, nor has a check that passes at once: the status shows both.
    """
    condition = transition.condition
    waited = any(c["type"] == condition.type and c["status"] == "False" for c in old)
    done = condition.status == "True" and (waited or condition.type in MEASURED)
    return transition.warning or done or condition.type == Type.READY


def _log(body: Body, transition: Transition) -> None:
    condition, meta = transition.condition, body["metadata"]
    logger.log(
        logging.WARNING if transition.warning else logging.INFO,
        "%s is %s (%s): %s",
        *(condition.type, condition.status, condition.reason, cut(condition.message)),
        extra={"resource": f"{meta['namespace']}/{meta['name']}"},
    )


async def _record(cluster: Cluster, body: Body, transition: Transition) -> None:
    """Write one event; a failure to write it is only logged."""
    try:
        await cluster.record_event(body, transition)
    except ClusterError as error:
        logger.warning("an event of %s/%s was not recorded: %s", *_key(body), error)
