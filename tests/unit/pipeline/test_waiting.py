"""Conditions of Jobs and pods that wait or failed: messages with cause and remedy."""

import json
from typing import Any

import pytest

from specdec.pipeline.stage import POLL
from support.simulated_cluster import World, ended, fetched, resource, waiting


def fetching(**spec: Any) -> World:
    world = World(resource(**spec))
    world.bind()
    world.step()
    return world


def building() -> World:
    world = fetching()
    world.finish(world.job("fetch"), fetched())
    world.step()
    return world


def unschedulable(text: str) -> dict[str, Any]:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": text,
    }
    return {"phase": "Pending", "conditions": [condition]}


STUCK = [
    (unschedulable("0/1 nodes are available: 1 Insufficient cpu."), "Unschedulable", "cpu"),
    (
        # The scheduler's message where the claim of a source is missing.
        unschedulable(
            '0/1 nodes are available: persistentvolumeclaim "pair" not found. not found.'
        ),
        "ClaimNotFound",
        "needs claim pair, which does not exist in its namespace: create it",
    ),
    (waiting("ImagePullBackOff", "Back-off pulling"), "ImagePullFailed", "example.com/x:1"),
    (waiting("ErrImagePull", "not found"), "ImagePullFailed", "not found"),
    (waiting("InvalidImageName", "bad"), "ImagePullFailed", "InvalidImageName"),
    (
        waiting("CreateContainerConfigError", 'secret "hf" not found'),
        "SecretMissing",
        'secret "hf" not found',
    ),
    (
        waiting("CreateContainerConfigError", "couldn't find key token in Secret demo/hf"),
        "SecretMissing",
        "key token",
    ),
    (
        waiting("CreateContainerConfigError", "image will run as root"),
        "ContainerConfigError",
        "run as root",
    ),
    (
        waiting("CreateContainerConfigError", "failed to sync secret cache: timed out waiting"),
        "Queued",
        "starts",
    ),
    ({"phase": "Pending"}, "Queued", "starts"),
    ({"phase": "Running", "startTime": "2026-01-02T03:00:00Z"}, "Fetching", "since 2026-01-02"),
]


@pytest.mark.parametrize(("status", "reason", "text"), STUCK)
def test_condition_reports_why_a_fetch_waits(
    status: dict[str, Any], reason: str, text: str
) -> None:
    world = fetching()
    job = world.job("fetch")
    world.pod(job, status, nodeName="node-7")

    decision = world.step()

    condition = world.condition("ModelsFetched")
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert text in condition["message"]
    assert job in condition["message"]
    assert decision.requeue_after == POLL
    assert decision.apply[1:] == ()


def test_message_of_a_running_job_has_its_node() -> None:
    world = fetching()
    world.pod(world.job("fetch"), {"phase": "Running"}, nodeName="node-7")
    world.step()
    assert world.condition("ModelsFetched")["message"].endswith("target and draft on node node-7")


def test_job_between_attempts_reports_the_last_error() -> None:
    world = fetching()
    error = {"error": {"reason": "NetworkError", "message": "the hub does not answer"}}
    world.pod(world.job("fetch"), ended(json.dumps(error), code=1))

    world.step()

    condition = world.condition("ModelsFetched")
    assert condition["reason"] == "NetworkError"
    assert "tries again" in condition["message"]
    assert "the hub does not answer" in condition["message"]


@pytest.mark.parametrize(
    ("message", "reason", "text"),
    [
        (
            '{"error": {"reason": "AuthFailed", "message": "bad token."}}',
            "AuthFailed",
            "bad token",
        ),
        ("a log line\nthe last line", "FetchFailed", "last message: a log line the last line"),
        ("[1, 2]", "FetchFailed", "last message: [1, 2]"),
        ("", "FetchFailed", "failed: its pod reported no message; to try again: "),
        ('{"error": "odd"}', "FetchFailed", "odd"),
        ('{"error": {"reason": "not a reason!"}}', "FetchFailed", "not a reason!"),
    ],
)
def test_failed_job_reports_cause_and_remedy(message: str, reason: str, text: str) -> None:
    world = fetching()
    job = world.job("fetch")
    world.fail(job, message)

    decision = world.step()

    condition = world.condition("ModelsFetched")
    assert condition["reason"] == reason
    assert text in condition["message"]
    assert condition["message"].endswith(f"; to try again: kubectl delete job {job}")
    assert decision.requeue_after is None
    assert world.cr["status"]["phase"] == "Failed"
    world.delete("Job", job)
    world.step()
    assert world.named("fetch") == [job]


def test_long_termination_messages_are_cut_to_their_end() -> None:
    world = building()
    job = world.named("engine")[0]
    world.fail(job, "x" * 3000 + " the end")

    world.step()

    message = world.condition("EnginesReady")["message"]
    assert "the end" in message
    assert len(message) < 1000
    assert message.startswith("0 of 2 engines built; target: Job")


def test_out_of_memory_message_has_the_limit() -> None:
    world = building()
    job = world.named("engine")[0]
    container = {"name": "build", "resources": {"limits": {"memory": "1Gi"}}}
    world.pod(job, ended("", code=137, reason="OOMKilled"), containers=[container])

    world.step()

    condition = world.condition("EnginesReady")
    assert condition["reason"] == "OutOfMemory"
    assert "memory limit of 1Gi" in condition["message"]
    assert world.cr["status"]["engines"][0]["state"] == "Failed"


def test_deadline_message_has_the_field() -> None:
    world = building()
    job = world.named("engine")[0]
    world.fail(job, "", reason="DeadlineExceeded")

    world.step()

    condition = world.condition("EnginesReady")
    assert condition["reason"] == "DeadlineExceeded"
    assert "14400 seconds: raise spec.build.activeDeadlineSeconds" in condition["message"]


@pytest.mark.parametrize(
    ("component", "condition", "message"),
    [
        ("fetch", "ModelsFetched", "86400 seconds: raise spec.fetch.activeDeadlineSeconds"),
        ("publish", "RepositoryReady", "21600 seconds: check the volume"),
    ],
)
def test_deadline_of_fetch_and_publish_has_the_remedy(
    component: str, condition: str, message: str
) -> None:
    world = fetching() if component == "fetch" else building()
    if component == "publish":
        for job in world.named("engine"):
            world.finish(job, {})
        world.step()
    world.fail(world.job(component), "", reason="DeadlineExceeded")

    world.step()

    reported = world.condition(condition)
    assert reported["reason"] == "DeadlineExceeded"
    assert message in reported["message"]


def test_failed_engine_is_reported_before_a_running_one() -> None:
    world = building()
    first, second = world.named("engine")
    world.pod(first, {"phase": "Running"})
    world.fail(second, '{"error": {"reason": "CheckpointCorrupt", "message": "cut"}}')

    decision = world.step()

    assert world.condition("EnginesReady")["reason"] == "CheckpointCorrupt"
    assert decision.requeue_after == POLL
    assert [e["state"] for e in world.cr["status"]["engines"]] == ["Building", "Failed"]


def test_raising_a_limit_replaces_the_failed_job() -> None:
    world = building()
    for job in world.named("engine"):
        world.fail(job, "killed")
    world.spec["build"] = {"resources": {"limits": {"memory": "8Gi"}}}

    world.step()
    assert world.named("engine") == []
    world.step()

    jobs = [world.jobs[name] for name in world.named("engine")]
    memory = [
        job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
        for job in jobs
    ]
    assert memory == ["8Gi", "8Gi"]


def test_another_node_selector_replaces_a_job_that_cannot_be_scheduled() -> None:
    world = building()
    job = world.named("engine")[0]
    world.pod(job, unschedulable("no node"))
    world.spec["build"] = {"nodeSelector": {"gpu": "yes"}}

    world.step()
    world.step()

    selector = world.jobs[job]["spec"]["template"]["spec"]["nodeSelector"]
    assert selector == {"gpu": "yes"}


def test_stage_waits_for_a_job_that_is_being_deleted() -> None:
    world = fetching()
    job = world.job("fetch")
    world.jobs[job]["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"

    decision = world.step()

    assert "is being deleted" in world.condition("ModelsFetched")["message"]
    assert [obj["kind"] for obj in decision.apply] == ["PersistentVolumeClaim"]
    assert decision.requeue_after == POLL


def test_permanent_exit_code_fails_the_job_at_once() -> None:
    """The pod ends before the Job has a condition; the only event must have the remedy."""
    world = fetching()
    job = world.job("fetch")
    error = '{"error": {"reason": "AuthFailed", "message": "no access"}}'

    world.pod(job, ended(error, code=1))
    world.step()
    assert "tries again" in world.condition("ModelsFetched")["message"]

    world.pod(job, ended(error, code=2))
    world.step()
    condition = world.condition("ModelsFetched")
    assert condition["reason"] == "AuthFailed"
    assert f"kubectl delete job {job}" in condition["message"]
