"""The state of a resource by its conditions and their history: in progress, done or failed.

`run` calls `history` and `state` after every read of a resource. Both are pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from specdec.api.condition_types import VERIFIED, Type
from specdec.api.reasons import (
    BenchmarkReason,
    CommonReason,
    Severity,
    VerificationReason,
    parse,
)

Json = dict[str, Any]
# Seconds within which the operator must reconcile a new resource for the first time.
RECONCILE_SECONDS = 180
# A measurement with one of these is not done yet.
_UNFINISHED = frozenset(
    {
        CommonReason.WAITING,
        CommonReason.QUEUED,
        VerificationReason.VERIFYING,
        VerificationReason.STALE,
        BenchmarkReason.MEASURING,
    }
)


@dataclass(frozen=True)
class EntryLimits:
    """How long an entry may take, in seconds: in all, and blocked by one reason."""

    total: float
    blocked: float


@dataclass(frozen=True)
class State:
    """How far a resource has come.

    Attributes:
        done: it needs no more time; it serves and is measured if `problem` is empty.
        message: what it waits for, for people.
        problem: why it failed, in one sentence.
        condition: type and reason of the condition that reports the problem.
    """

    done: bool
    message: str = ""
    problem: str = ""
    condition: tuple[str, str] | None = None


def history(past: Sequence[Json], body: Mapping[str, Any], now: str) -> list[Json]:
    """The changes of status and reason so far, with those of the present status.

    Args:
        past: earlier changes: at, type, status, reason, message.
        body: the resource.
        now: RFC 3339.
    """
    last = {item["type"]: (item["status"], item["reason"]) for item in past}
    changed = [
        {"at": now, **{key: item.get(key, "") for key in ("type", "status", "reason", "message")}}
        for item in conditions(body).values()
        if last.get(item["type"]) != (item["status"], item["reason"])
    ]
    return [*past, *changed]


def conditions(body: Mapping[str, Any]) -> dict[str, Json]:
    """The conditions by type; none while the status is of an earlier generation."""
    status = body.get("status", {})
    if status.get("observedGeneration") != body["metadata"].get("generation"):
        return {}
    return {item["type"]: item for item in status.get("conditions", [])}


def state(
    body: Mapping[str, Any],
    past: Sequence[Json],
    started: datetime,
    now: datetime,
    limits: EntryLimits,
) -> State:
    """How far a resource has come.

    Args:
        body: the resource as it was read.
        past: the result of `history`.
        started: when the entry started, by the clock of `now`.
        now: the present time, with its time zone.
        limits: the limits of the entry.
    """
    age = (now - started).total_seconds()
    present = conditions(body)
    ready = present.get(Type.READY)
    if ready is None:
        if age > RECONCILE_SECONDS:
            problem = (
                f"the operator has not reconciled the resource within {RECONCILE_SECONDS} s: "
                "check that it runs, and that it watches this namespace"
            )
            return State(True, problem=problem)
        return State(False, "waits for the operator")
    waiting = ready if ready["status"] != "True" else _unmeasured(body, present)
    if waiting is None:
        return State(True)
    if waiting is ready:
        waiting = _cause(present, ready)
    blocked_by = (waiting["type"], waiting["reason"])
    sentence = f"{waiting['type']} is {waiting['reason']}: {waiting.get('message', '')}"
    reason = parse(waiting["reason"])
    if reason is not None and reason.severity is Severity.FAILED:
        return State(True, problem=sentence, condition=blocked_by)
    if age > limits.total:
        return State(
            True,
            problem=f"not finished within {limits.total / 60:g} minutes; {sentence}",
            condition=blocked_by,
        )
    blocked = reason is not None and reason.severity is Severity.BLOCKED
    if blocked and _seconds_since(past, *blocked_by, now) > limits.blocked:
        problem = f"{sentence} (for more than {limits.blocked / 60:g} minutes)"
        return State(True, problem=problem, condition=blocked_by)
    return State(False, sentence)


def judged(body: Mapping[str, Any]) -> tuple[Type, ...]:
    """The measured conditions that a resource must reach; the speed is only reported."""
    spec = body["spec"]
    speculates = spec.get("speculation", {}).get("method") != "None"
    verified = VERIFIED[:2] if speculates else ()
    measures = spec.get("benchmark", {}).get("mode", "Disabled") != "Disabled"
    return (*verified, Type.BENCHMARK_COMPLETED) if measures else verified


def _unmeasured(body: Mapping[str, Any], present: Mapping[str, Json]) -> Json | None:
    """The first measured condition that is not done; None if all are."""
    for kind in judged(body):
        condition = present.get(kind)
        if condition is None:
            return {"type": kind, "reason": CommonReason.WAITING, "message": "not measured yet"}
        reason = parse(condition["reason"])
        # A blocked Job may start by itself; a condition that is False is a result.
        waits = condition["status"] == "Unknown" and (
            reason in _UNFINISHED
            or (reason is not None and reason.severity is not Severity.PROGRESS)
        )
        if waits and reason != VerificationReason.NOT_COMPARABLE:
            return condition
    return None


def _cause(present: Mapping[str, Json], ready: Json) -> Json:
    """The condition whose reason Ready repeats; Ready itself if the reason is its own."""
    others = (item for kind, item in present.items() if kind != Type.READY)
    return next(
        (c for c in others if c["reason"] == ready["reason"] and c["status"] != "True"), ready
    )


def _seconds_since(past: Sequence[Json], kind: str, reason: str, now: datetime) -> float:
    """For how long a condition has had its reason."""
    of_kind = [item for item in past if item["type"] == kind]
    if not of_kind or of_kind[-1]["reason"] != reason:
        return 0.0
    return (now - _moment(of_kind[-1]["at"])).total_seconds()


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
