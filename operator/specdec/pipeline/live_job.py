"""A Job of the snapshot together with its pods: its state, and the result that it left.

Two requests read Jobs and pods, and a Job may end between them. `find` never takes such a Job for
one that left no result.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal

from specdec.pipeline.job_results import Result, result
from specdec.pipeline.observed import Object, Observed, job_condition, job_state

# How long an ended Job without pods may be a Job whose pods were read from an older state.
PODS_FOLLOW_WITHIN = timedelta(seconds=30)

State = Literal["Absent", "Deleting", "Running", "Ended", "Complete", "Failed"]
"""The state of a Job. It is Ended if the read pods do not show its end yet."""


@dataclass(frozen=True)
class LiveJob:
    """A Job in the cluster: state, object, pods (newest first), last log lines of the newest.

    `refusal` is why the API server refuses its next pod; empty if a pod runs, or nothing is known.
    """

    name: str
    state: State
    body: Object
    pods: list[Object]
    log: str = ""
    refusal: str = ""

    @cached_property
    def result(self) -> Result:
        """What the Job's pods left in their termination messages."""
        return result(self.pods)


def find(observed: Observed, name: str) -> LiveJob:
    """The live Job of a name; its state is Absent where there is none."""
    body = observed.jobs.get(name)
    if body is not None and being_deleted(body):
        return LiveJob(name, "Deleting", body, [])
    pods = observed.pods_of(name)
    log = observed.logs.get(pods[0]["metadata"]["name"], "") if pods else ""
    state, refusal = _state(body, pods, observed.now), observed.refusals.get(name, "")
    return LiveJob(name, state, body or {}, pods, log, refusal)


def _state(body: Object | None, pods: list[Object], now: datetime) -> State:
    """The state of a Job and its pods, which two requests have read at different times."""
    state = job_state(body)
    if body is None:
        return state
    if state == "Running":
        return "Failed" if pods and _failed_for_good(body, pods[0]) else "Running"
    return "Ended" if _pods_are_older(body, pods, now) else state


def being_deleted(live: Object) -> bool:
    """Whether an object has been deleted, and waits for what holds it."""
    return bool(live["metadata"].get("deletionTimestamp"))


def _pods_are_older(job: Object, pods: list[Object], now: datetime) -> bool:
    """Whether the pods of an ended Job were read before it ended, so that its result is unknown.

    A Job ends after its pods. Without any pod, it may also have lost them: if they are still
    missing after some seconds, the Job is judged without them.
    """
    if job_condition(job).get("reason") == "DeadlineExceeded":
        return False  # the Job itself has the cause, and its pods may still be stopping
    if pods:
        phases = {pod.get("status", {}).get("phase") for pod in pods if not being_deleted(pod)}
        return "Succeeded" not in phases and not phases <= {"Failed"}
    at = job_condition(job).get("lastTransitionTime")
    return at is not None and abs(now - datetime.fromisoformat(at)) < PODS_FOLLOW_WITHIN


def _failed_for_good(job: Object, pod: Object) -> bool:
    """Whether a pod ended with an exit code that fails its Job without another attempt.

    The Job's own condition follows some moments later; until then the Job would seem to run.
    """
    rules = job["spec"].get("podFailurePolicy", {}).get("rules", [])
    final = [rule["onExitCodes"]["values"] for rule in rules if rule["action"] == "FailJob"]
    codes = (
        status.get("state", {}).get("terminated", {}).get("exitCode")
        for status in pod.get("status", {}).get("containerStatuses", [])
    )
    return any(code in values for code in codes for values in final)
