"""The condition Available, as it follows from the Deployment and its pods."""

from typing import Any

import pytest

from specdec.api import names
from specdec.pipeline.stage import POLL
from support.simulated_cluster import NOW, World, resource, settled, waiting


def deployed(**spec: Any) -> World:
    """Return a world whose Deployment was just created and has no ready pod."""
    world = settled(resource(**spec))
    deployment = world.deployment
    assert deployment is not None
    generation = deployment["metadata"]["generation"]
    deployment["status"] = {"observedGeneration": generation, "replicas": 1, "updatedReplicas": 1}
    return world


def pod(world: World, status: dict[str, Any]) -> None:
    assert world.deployment is not None
    template = world.deployment["spec"]["template"]
    metadata = {
        "name": "pair-abc",
        "labels": template["metadata"]["labels"],
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    world.pods.append({"metadata": metadata, "spec": template["spec"], "status": status})


def crashed(seconds: int, **end: Any) -> dict[str, Any]:
    minutes, rest = divmod(seconds, 60)
    terminated = {
        "exitCode": 1,
        "message": "failed to load model",
        "startedAt": "2026-01-02T03:00:00Z",
        "finishedAt": f"2026-01-02T03:{minutes:02d}:{rest:02d}Z",
        **end,
    }
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    last = {"terminated": terminated}
    container = {"state": state, "lastState": last, "restartCount": 3, "ready": False}
    return {"phase": "Running", "containerStatuses": [container]}


def mark_checked(world: World) -> None:
    """Set the status as after a successful check of the volume by the publish Job."""
    world.cr["status"]["repository"]["checkedAt"] = NOW.isoformat()


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (waiting("ErrImageNeverPull", "absent"), "ImagePullFailed", "example.com/x:1"),
        (
            waiting("CreateContainerConfigError", 'secret "pair-tls" not found'),
            "SecretMissing",
            'secret "pair-tls" not found: create it',
        ),
        (crashed(5), "CrashLoop", "restarted 3 times; last message: failed to load model"),
        (crashed(1800), "StartupTimeout", "not ready within 1800 seconds"),
        (crashed(1800), "StartupTimeout", "failed to load model"),
        (crashed(5, reason="OOMKilled"), "OutOfMemory", "memory"),
        ({"phase": "Running"}, "Starting", "pair-abc loads its models"),
    ],
)
def test_available_reports_why_a_pod_is_not_ready(
    status: dict[str, Any], reason: str, text: str
) -> None:
    world = deployed()
    mark_checked(world)
    pod(world, status)

    decision = world.step()

    condition = world.condition("Available")
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert text in condition["message"]
    assert world.condition("Ready")["reason"] == reason
    assert decision.requeue_after == POLL


@pytest.mark.parametrize(
    ("end", "reason", "text"),
    [
        ({}, "CrashLoop", "container openai of pod pair-abc restarted 3 times"),
        # The startup budget limits only the server; the endpoint may have run longer.
        ({"finishedAt": "2026-01-02T04:00:00Z"}, "CrashLoop", "container openai of pod"),
        (
            {"reason": "OOMKilled"},
            "OutOfMemory",
            "raise spec.serving.openAI.resources.limits.memory",
        ),
    ],
)
def test_available_names_the_openai_endpoint(end: dict[str, Any], reason: str, text: str) -> None:
    world = deployed(serving={"openAI": {}})
    (failed,) = crashed(5, **end)["containerStatuses"]
    server = {"name": "server", "ready": True, "state": {"running": {}}}
    statuses = [server, {**failed, "name": "openai"}]
    pod(world, {"phase": "Running", "containerStatuses": statuses})
    world.step()
    condition = world.condition("Available")
    assert condition["reason"] == reason
    assert text in condition["message"]
    if reason == "OutOfMemory":
        assert "1Gi" in condition["message"]
        assert "2Gi" in condition["message"]


@pytest.mark.parametrize(
    ("changed", "end", "reason"),
    [
        ("2026-01-02T02:59:59Z", {}, "Starting"),
        ("2026-01-02T03:31:40Z", {}, "NotAnswering"),
        ("2026-01-02T02:59:59Z", {"exitCode": 1, "message": "failed"}, "CrashLoop"),
        # The end of an earlier run is no cause: the present run was ready.
        ("2026-01-02T03:31:40Z", {"exitCode": 1, "message": "failed"}, "NotAnswering"),
    ],
)
def test_running_pod_that_was_ready_is_not_loading(
    changed: str, end: dict[str, Any], reason: str
) -> None:
    """A pod is briefly not ready after its startup probe, until its readiness probe succeeds."""
    world = deployed()
    mark_checked(world)
    run = {"running": {"startedAt": "2026-01-02T03:00:00Z"}}
    container = {"state": run, "started": True, "ready": False, "restartCount": 1 if end else 0}
    if end:
        container["lastState"] = {"terminated": end}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": changed}
    pod(world, {"phase": "Running", "containerStatuses": [container], "conditions": [ready]})
    world.step()
    assert world.condition("Available")["reason"] == reason


def test_crash_after_long_service_is_no_startup_timeout() -> None:
    world = deployed()
    mark_checked(world)
    status = crashed(1900)
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:31:40Z"}
    pod(world, {**status, "conditions": [ready]})
    world.step()
    assert world.condition("Available")["reason"] == "CrashLoop"

    never = {**ready, "lastTransitionTime": "2026-01-02T02:59:59Z"}
    world.pods[-1]["status"] = {**status, "conditions": [never]}
    world.step()
    assert world.condition("Available")["reason"] == "StartupTimeout"


def test_pod_of_another_revision_is_ignored() -> None:
    world = deployed()
    pod(world, crashed(5))
    world.pods[-1]["metadata"]["labels"] = {
        **world.pods[-1]["metadata"]["labels"],
        names.REPOSITORY: "older",
    }

    world.step()

    assert world.condition("Available")["reason"] == "Starting"


@pytest.mark.parametrize(
    ("repositories", "text"),
    [
        (["older"], "1 of 2 pods serve requests with the previous revision"),
        (["older", ""], "2 of 2 pods serve requests, some of them with the previous revision"),
        ([""], "1 of 2 pods serve requests"),
        ([], "no pod is ready yet"),
    ],
)
def test_available_names_the_revisions_that_serve_during_a_rollout(
    repositories: list[str], text: str
) -> None:
    world = deployed(serving={"replicas": 2})
    for repository in repositories:
        pod(world, {"conditions": [{"type": "Ready", "status": "True"}]})
        labels = world.pods[-1]["metadata"]["labels"]
        world.pods[-1]["metadata"]["labels"] = labels | (
            {names.REPOSITORY: repository} if repository else {}
        )
    assert world.deployment is not None
    world.deployment["status"] |= {"readyReplicas": len(repositories), "replicas": 3}

    world.step()

    message = world.condition("Available")["message"]
    assert message == f"Deployment pair starts its pods; {text}"


REFUSED = 'pods "pair-7f-" is forbidden: no PriorityClass with name high is known'


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (
            ("Progressing", "False", "ProgressDeadlineExceeded", "timed out."),
            "Deployment pair makes no progress (ProgressDeadlineExceeded: timed out)",
        ),
        (
            ("ReplicaFailure", "True", "FailedCreate", REFUSED),
            f"Deployment pair cannot create its pods (FailedCreate: {REFUSED})",
        ),
        (("Progressing", "True", "ReplicaSetUpdated", "goes on"), ""),
    ],
)
def test_available_reports_why_a_rollout_is_stuck(
    condition: tuple[str, str, str, str], message: str
) -> None:
    world = deployed()
    assert world.deployment is not None
    members = dict(zip(("type", "status", "reason", "message"), condition, strict=True))
    world.deployment["status"] |= {"conditions": [members], "readyReplicas": 1, "replicas": 2}

    world.step()

    available = world.condition("Available")
    assert available["reason"] == ("RolloutStuck" if message else "Starting")
    assert available["message"].startswith(message)
    assert available["message"].endswith("; 1 of 1 pods serve requests")


def test_message_of_a_paused_rollout_has_the_command_to_resume() -> None:
    world = deployed()
    assert world.deployment is not None
    world.deployment["spec"]["paused"] = True

    world.step()

    available = world.condition("Available")
    assert available["reason"] == "RolloutStuck"
    assert "is paused: kubectl rollout resume deployment pair" in available["message"]


def test_old_counts_do_not_make_a_service_available() -> None:
    """After a change of the pod template, the Deployment's counts still describe the old pods."""
    world = settled(resource())
    world.spec["serving"] = {"sharedMemory": "3Gi"}

    world.step()
    assert world.condition("Available")["status"] == "False"
    world.step()
    assert world.condition("Available")["status"] == "False"
    world.serve()
    world.step()
    assert world.condition("Available")["status"] == "True"


@pytest.mark.parametrize("change", ["labels", "annotations"])
def test_old_counts_do_not_end_availability(change: str) -> None:
    """The API server also increases a Deployment's generation when its annotations change."""
    world = settled(resource())
    assert world.deployment is not None
    generation = world.deployment["metadata"]["generation"]
    world.spec["metadata"] = {"servers": {change: {"team": "a"}}}

    world.step()
    assert world.condition("Available")["status"] == "True"
    world.deployment["metadata"]["annotations"]["example.com/by"] = "another"
    world.deployment["metadata"]["generation"] = generation + 2
    world.step()
    assert world.condition("Available")["status"] == "True"


def test_available_waits_for_all_replicas() -> None:
    world = settled(resource())
    world.spec["serving"] = {"replicas": 2}

    world.step()
    assert world.condition("Available")["status"] == "False"
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert world.cr["status"]["replicas"] == 2
