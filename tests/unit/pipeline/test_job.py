"""The result of a stage for each state of its Job, which is the same for all stages."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import EngineReason
from specdec.pipeline import job
from specdec.pipeline.job import Done, Pending, Task
from specdec.pipeline.live_job import LiveJob
from specdec.pipeline.observed import Observed, Ref
from specdec.pipeline.stage import POLL, Context
from support.simulated_cluster import IMAGES, NOW, ended, resource

Json = dict[str, Any]
NAME = "pair-build-1"
DELETE = (Ref("batch/v1", "Job", NAME),)
INPUT: Json = {"kind": "ConfigMap"}


def desired(image: str = "image") -> Json:
    body = {
        "kind": "Job",
        "metadata": {"name": NAME, "labels": {names.MODEL: "pair"}},
        "spec": {"template": image},
    }
    return job.with_spec_hash(body)


def live(image: str = "image", **status: str) -> Json:
    conditions = [{"type": kind, "status": value} for kind, value in status.items()]
    return {**desired(image), "status": {"conditions": conditions}}


def pod(status: Json) -> Json:
    labels = {"batch.kubernetes.io/job-name": NAME}
    metadata = {"name": "p", "labels": labels, "creationTimestamp": "2026-01-02T03:04:05Z"}
    return {"metadata": metadata, "status": status}


def deleting(body: Json) -> Json:
    return {**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-02T03:04:05Z"}}


def parse(live_job: LiveJob) -> float | None:
    built = live_job.result.engine
    return built.seconds if built else None


TASK: Task[float] = Task(
    job=desired(),
    parse=parse,
    sections=("engine",),
    running=EngineReason.BUILDING,
    failure=EngineReason.BUILD_FAILED,
    activity="builds the engine",
    purpose="to build the engine",
    suspended="suspended",
    inputs=(INPUT,),
)


def advance(
    body: Json | None, *pods: Json, task: Task[float] = TASK, suspend: bool = False
) -> Done[float] | Pending:
    jobs = {} if body is None else {NAME: body}
    model = SpeculativeModel.parse(resource(suspend=suspend))
    return job.advance(Context(model, Observed(NOW, jobs=jobs, pods=pods), IMAGES), task)


def built(seconds: object) -> Json:
    return pod(ended(json.dumps({"engine": {"seconds": seconds}})))


RUNNING = pod({"phase": "Running"})
FAILED = pod({"phase": "Failed"})
EMPTY = pod({"phase": "Succeeded"})
DELETING = deleting(live())


@pytest.mark.parametrize(
    ("body", "pods", "reason", "message", "apply", "delete", "wait"),
    [
        (None, (), "Queued", "is created to build", (INPUT, desired()), (), POLL),
        (live(), (), "Queued", "waits for its pod", (INPUT,), (), POLL),
        (live(), (RUNNING,), "Building", "builds the engine", (INPUT,), (), POLL),
        (live("older"), (RUNNING,), "Queued", "is being replaced by one", (), DELETE, POLL),
        (live("older", Failed="True"), (), "Queued", "is being replaced", (), DELETE, POLL),
        (DELETING, (), "Queued", "is being deleted", (), (), POLL),
        (live(Complete="True"), (), "Queued", "lost its result", (), DELETE, POLL),
        (live(Complete="True"), (FAILED,), "Queued", "lost its result", (), DELETE, POLL),
        (live(Failed="True"), (), "BuildFailed", "delete job", (INPUT,), (), None),
        (live(Complete="True"), (built("x"),), "InvalidResult", "engine.seconds", (), (), None),
        (live(Complete="True"), (EMPTY,), "BuildFailed", "reported no result", (), (), None),
    ],
)
def test_each_state_has_its_next_step(
    body: Json | None,
    pods: tuple[Json, ...],
    reason: str,
    message: str,
    apply: tuple[Json, ...],
    delete: tuple[Ref, ...],
    wait: float | None,
) -> None:
    step = advance(body, *pods)

    assert isinstance(step, Pending)
    assert step.cause.reason == reason
    assert message in step.cause.message
    assert (step.apply, step.delete, step.requeue_after) == (apply, delete, wait)
    assert step.failed == (wait is None), "only a failed Job waits for a person"


def test_a_complete_job_has_a_result() -> None:
    assert advance(live(Complete="True"), built(2.5)) == Done(2.5)
    assert advance(live(Complete="True"), built(2.5), suspend=True) == Done(2.5)


JUST_NOW = (NOW - timedelta(seconds=3)).isoformat()
LONG_AGO = (NOW - timedelta(minutes=3)).isoformat()


def ended_at(kind: str, at: str, reason: str = "") -> Json:
    body = live()
    condition = {"type": kind, "status": "True", "lastTransitionTime": at, "reason": reason}
    return {**body, "status": {"conditions": [condition]}}


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
@pytest.mark.parametrize(
    "pods",
    [
        (RUNNING,),
        (pod({"phase": "Pending"}),),
        (pod({}),),
        (RUNNING, FAILED),
        (),
    ],
)
def test_an_ended_job_is_not_judged_by_pods_that_were_read_before_its_end(
    kind: str, pods: tuple[Json, ...]
) -> None:
    """Jobs and pods come from two requests, and a Job may end between them."""
    step = advance(ended_at(kind, JUST_NOW), *pods)

    assert isinstance(step, Pending)
    assert step.cause.reason == "Building"
    assert "has ended, and its result is read next" in step.cause.message
    assert (step.failed, step.apply, step.delete, step.requeue_after) == (False, (), (), POLL)


def test_an_ended_job_whose_pods_stay_away_is_judged_without_them() -> None:
    lost = advance(ended_at("Complete", LONG_AGO))
    assert isinstance(lost, Pending)
    assert (lost.delete, lost.failed) == (DELETE, False)

    failed = advance(ended_at("Failed", LONG_AGO))
    assert isinstance(failed, Pending)
    assert failed.failed


@pytest.mark.parametrize(
    ("body", "pods"),
    [
        # Its pods may still be stopping, and their node may be lost.
        (ended_at("Failed", JUST_NOW, "DeadlineExceeded"), (RUNNING,)),
        (ended_at("Failed", JUST_NOW), (deleting(RUNNING),)),
        (ended_at("Failed", JUST_NOW), (FAILED,)),
    ],
)
def test_a_failed_job_is_judged_at_once_if_no_later_read_can_change_the_cause(
    body: Json, pods: tuple[Json, ...]
) -> None:
    step = advance(body, *pods)
    assert isinstance(step, Pending)
    assert step.failed


def test_an_ended_job_is_kept_while_its_pods_are_older_than_its_end() -> None:
    """A suspended resource deletes Jobs that run: this one does not run any more."""
    model = SpeculativeModel.parse(resource())
    body = ended_at("Complete", JUST_NOW)
    assert job.unfinished(Observed(NOW, jobs={NAME: body}, pods=(RUNNING,)), model) == []


def test_a_remembered_result_needs_no_job() -> None:
    task = replace(TASK, remembered=7.0)
    assert advance(None, task=task) == Done(7.0)
    assert advance(live(Complete="True"), built("x"), task=task) == Done(7.0)


def test_a_failed_job_has_a_result_where_the_task_allows_it() -> None:
    assert isinstance(advance(live(Failed="True"), built(2.5)), Pending)
    task = replace(TASK, final=("Complete", "Failed"))
    assert advance(live(Failed="True"), built(2.5), task=task) == Done(2.5)


def test_nothing_is_created_while_suspended_or_before_its_time() -> None:
    step = advance(None, suspend=True)
    assert isinstance(step, Pending)
    assert (step.cause.reason, step.apply, step.requeue_after) == ("Suspended", (), None)
    step = advance(None, task=replace(TASK, waits_for="Available"))
    assert isinstance(step, Pending)
    assert (step.cause.message, step.apply, step.failed) == ("waits for Available", (), False)


def test_the_running_job_of_another_resource_is_joined() -> None:
    membership: Json = {"kind": "Job", "metadata": {"name": NAME}}
    other = live()
    other["metadata"] = {**other["metadata"], "labels": {names.sharer("other"): ""}}
    step = advance(other, RUNNING, task=replace(TASK, membership=membership))
    assert isinstance(step, Pending)
    assert step.apply == (INPUT, membership)


@pytest.mark.parametrize(
    ("note", "why"),
    [
        (
            'Error creating: pods "pair-build-1-x7k2p" is forbidden: exceeded quota: gpus, '
            "requested: requests.nvidia.com/gpu=8, used: ..., limited: ...",
            "exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, used: ..., limited:",
        ),
        (
            '(combined from similar events): Error creating: pods "pair-build-1-9" is forbidden: '
            'violates PodSecurity "restricted:latest"',
            'violates PodSecurity "restricted:latest"',
        ),
        (
            'Error creating: admission webhook "pods.example.com" denied the request: no tag',
            'admission webhook "pods.example.com" denied the request: no tag',
        ),
    ],
)
def test_refused_pod_is_reported_with_the_reason_from_the_job_s_event(note: str, why: str) -> None:
    """Every stage's Job is judged here; the name of the pod changes with each attempt."""
    model = SpeculativeModel.parse(resource())
    observed = Observed(NOW, jobs={NAME: live()}, refusals={NAME: note})
    step = job.advance(Context(model, observed, IMAGES), TASK)
    assert isinstance(step, Pending)
    assert (step.cause.reason, step.requeue_after) == ("PodRejected", POLL)
    assert step.cause.message.startswith(f"the API server rejects the pod of Job {NAME}: {why}")
    again = job.advance(Context(model, replace(observed, pods=(FAILED,)), IMAGES), TASK)
    assert isinstance(again, Pending)
    assert again.cause == step.cause, "the next pod after a failed one is refused"
    started = replace(observed, pods=(RUNNING,))
    step = job.advance(Context(model, started, IMAGES), TASK)
    assert isinstance(step, Pending)
    assert step.cause.reason == "Building"
