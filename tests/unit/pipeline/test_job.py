"""The result of a stage for each state of its Job, which is the same for all stages."""

import json
from dataclasses import replace
from typing import Any

import pytest

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import EngineReason
from specdec.pipeline import job
from specdec.pipeline.job import Done, LiveJob, Pending, Task
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
DELETING = live()
DELETING["metadata"] = {**DELETING["metadata"], "deletionTimestamp": "2026-01-02T03:04:05Z"}


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
        (live(Failed="True"), (), "BuildFailed", "delete job", (INPUT,), (), None),
        (live(Complete="True"), (built("x"),), "InvalidResult", "engine.seconds", (), (), None),
        (live(Complete="True"), (pod({}),), "BuildFailed", "reported no result", (), (), None),
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
