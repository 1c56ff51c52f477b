"""A server that waits for damaged files causes a check, which leads to their repair."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from specdec.pipeline.decide import decide
from support.simulated_cluster import NOW, World, fetched, resource, settled
from unit.pipeline.test_group import served
from unit.pipeline.test_optional_objects import ABLE, ACTIVE, BY_HPA

Json = dict[str, Any]
DAMAGE = "the draft engine bbbb: rank0.engine has other content"


@pytest.fixture
def world() -> World:
    return settled(resource())


def wait(
    world: World, *sentences: object, started: datetime = NOW, name: str = "pair-abc"
) -> None:
    """Add a pod of the live revision that waits for files; its log ends with its report."""
    assert world.deployment is not None
    world.deployment["status"].update(readyReplicas=0)
    template = world.deployment["spec"]["template"]
    world.pods.append(pod(name, template, started))
    world.logs[f"{name}/server"] = report(*sentences)


def pod(name: str, template: Json, started: datetime) -> Json:
    metadata = {
        "name": name,
        "labels": template["metadata"]["labels"],
        "creationTimestamp": "2026-01-02T03:00:00Z",
    }
    state = {"running": {"startedAt": started.isoformat()}}
    container = {"name": "server", "state": state, "ready": False}
    status = {"phase": "Running", "containerStatuses": [container]}
    return {"metadata": metadata, "spec": template["spec"], "status": status}


def report(*sentences: object) -> str:
    return json.dumps({"volume": {"damaged": list(sentences)}}) + "\n"


def check(world: World) -> list[str]:
    """Check that the report causes a new publish Job that reads every file; return its command."""
    world.step()
    condition = world.condition("RepositoryReady")
    assert (condition["status"], condition["reason"]) == ("False", "VolumeDamaged")
    assert f"pod pair-abc waits for the repair of {DAMAGE}" in condition["message"]
    assert world.named("publish") == []
    world.step()
    command: list[str] = container(world.jobs[world.job("publish")])["command"]
    return command


def container(job: Json) -> Json:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def end(world: World, reason: str, **more: Any) -> None:
    """Let the publish Job end with an error."""
    error = {"reason": reason, "message": f"{DAMAGE}: it is made again"}
    world.fail(world.job("publish"), json.dumps({**more, "error": error}))


def fail(world: World, reason: str, **more: Any) -> None:
    end(world, reason, **more)
    world.step()


def test_available_names_the_server_that_waits(world: World) -> None:
    wait(world, DAMAGE)
    world.step()
    condition = world.condition("Available")
    assert (condition["status"], condition["reason"]) == ("False", "VolumeDamaged")
    assert DAMAGE in condition["message"]
    assert world.condition("Ready")["reason"] == "VolumeDamaged"


def test_check_reads_every_file_and_a_first_publication_only_changes(world: World) -> None:
    assert "--content" not in container(world.jobs[world.job("publish")])["command"]
    wait(world, DAMAGE)
    assert check(world)[-1] == "--content"


def test_next_revision_is_published_without_a_full_check(world: World) -> None:
    wait(world, DAMAGE)
    check(world)
    world.finish(world.job("publish"), {})
    world.step()
    world.pods, world.logs = [], {}
    world.serve()
    world.spec["speculation"]["draftTokens"] = 2
    world.step()
    world.step()
    (new,) = [n for n in world.named("publish") if "status" not in world.jobs[n]]
    assert "--content" not in container(world.jobs[new])["command"]


def test_only_the_damaged_engine_is_built_again(world: World) -> None:
    roles = {e["role"]: e["job"] for e in world.cr["status"]["engines"]}
    wait(world, DAMAGE)
    check(world)
    fail(world, "EngineDamaged", lost=["draft"])
    condition = world.condition("EnginesReady")
    assert (condition["reason"], condition["status"]) == ("EngineDamaged", "False")
    assert DAMAGE in condition["message"]
    assert {e["role"]: e["state"] for e in world.cr["status"]["engines"]} == {
        "target": "Built",
        "draft": "Queued",
    }
    assert roles["draft"] not in world.jobs
    assert "status" in world.jobs[roles["target"]]
    world.step()
    assert "status" not in world.jobs[roles["draft"]]
    assert "status" in world.jobs[roles["target"]], "an intact engine is not built again"
    world.settle()
    assert world.condition("RepositoryReady")["status"] == "True"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("EnginesReady", "EngineDamaged"), ("ModelsFetched", "CheckpointDamaged")],
)
def test_cause_is_reported_after_a_crash_before_the_status(
    world: World, kind: str, reason: str
) -> None:
    wait(world, DAMAGE)
    check(world)
    end(world, reason)
    for ref in decide(world.model(), world.observed(), world.images).delete:
        world.delete(ref.kind, ref.name)
    world.step()
    assert world.condition(kind)["reason"] == reason
    assert world.named("publish") == []


def test_running_build_of_a_damaged_engine_is_kept(world: World) -> None:
    """The build of the shared engine is already running for another resource."""
    jobs = {e["role"]: e["job"] for e in world.cr["status"]["engines"]}
    wait(world, DAMAGE)
    check(world)
    del world.jobs[jobs["draft"]]["status"]
    before = world.jobs[jobs["draft"]]
    fail(world, "EngineDamaged", lost=["draft"])
    assert world.condition("EnginesReady")["reason"] == "EngineDamaged"
    assert world.jobs[jobs["draft"]] is before
    world.step()
    assert world.jobs[jobs["draft"]] is before
    assert world.condition("EnginesReady")["status"] == "False"


def test_a_damaged_checkpoint_is_fetched_again_and_named(world: World) -> None:
    wait(world, DAMAGE)
    check(world)
    fail(world, "CheckpointDamaged")
    condition = world.condition("ModelsFetched")
    assert (condition["status"], condition["reason"]) == ("False", "CheckpointDamaged")
    assert DAMAGE in condition["message"]
    world.step()
    (fetch,) = world.named("fetch")
    world.finish(fetch, fetched())
    world.step()
    assert world.condition("EnginesReady")["status"] == "True"


def test_server_that_started_before_the_last_check_causes_no_other_check(
    world: World,
) -> None:
    wait(world, DAMAGE, started=NOW - timedelta(seconds=30))
    check(world)
    world.finish(world.job("publish"), {})
    world.step()
    # The pod's log still ends with the report.
    world.step()
    assert world.condition("RepositoryReady")["status"] == "True"
    world.cr["status"]["repository"]["checkedAt"] = (NOW - timedelta(minutes=6)).isoformat()
    check(world)


def test_server_that_started_after_the_last_check_causes_another(world: World) -> None:
    wait(world, DAMAGE)
    check(world)
    world.finish(world.job("publish"), {})
    world.step()
    world.pods = world.pods[:-1]
    wait(world, DAMAGE, started=NOW + timedelta(seconds=1))
    check(world)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[" * 100_000,
        "null",
        "[]",
        '{"volume": []}',
        '{"volume": {"damaged": []}}',
        '{"volume": {"damaged": [7]}}',
        '{"volume": {"damaged": "x"}}',
        report(DAMAGE) + "I0101 Started GRPCInferenceService",
    ],
)
def test_other_log_lines_report_no_damage(line: str, world: World) -> None:
    wait(world, DAMAGE)
    world.logs["pair-abc/server"] = line
    world.step()
    assert world.condition("RepositoryReady")["status"] == "True"
    assert world.condition("Available")["reason"] == "Starting"


def test_damage_message_is_printable_and_short(world: World) -> None:
    wait(world, "a\x1b[31mb‮c" + "x" * 9000, {"more": 1})
    world.step()
    message = world.condition("Available")["message"]
    assert "a[31mbcx" in message
    assert len(message) < 800
    assert message.isprintable()


def test_leader_of_a_group_reports_damage() -> None:
    world = served()
    assert world.group is not None
    world.group["status"]["readyReplicas"] = 0
    template = world.group["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    leader = pod("pair-abc", template, NOW)
    labels = {**leader["metadata"]["labels"], "leaderworkerset.sigs.k8s.io/name": "pair-group"}
    leader["metadata"]["labels"] = labels
    world.pods.append(leader)
    world.logs["pair-abc/server"] = report(DAMAGE)
    world.step()
    assert world.condition("Available")["reason"] == "VolumeDamaged"
    assert world.condition("RepositoryReady")["reason"] == "VolumeDamaged"


def test_pod_that_starts_beside_ready_ones_may_report_damage() -> None:
    world = settled(resource(serving={"replicas": 2, "scaling": BY_HPA}))
    for scaler in world.optional_objects.values():
        scaler["status"] = {"conditions": [ABLE, ACTIVE]}
    assert world.step().requeue_after is None
    wait(world, DAMAGE)
    assert world.deployment is not None
    world.deployment["status"]["readyReplicas"] = 1
    # The log is empty, and a later line in it causes no watch event: the operator must poll.
    (log,) = world.logs.values()
    world.logs.clear()
    assert world.step().requeue_after == 30
    assert world.condition("Available")["status"] == "True"
    world.logs["pair-abc/server"] = log
    check(world)
    world.finish(world.job("publish"), {})
    world.step()
    (started,) = [pod for pod in world.pods if pod["metadata"]["name"] == "pair-abc"]
    started["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert world.step().requeue_after is None


def test_suspended_resource_repairs_nothing(world: World) -> None:
    wait(world, DAMAGE)
    world.spec["suspend"] = True
    world.step()
    assert world.cr["status"]["repository"]["hash"]


def test_repair_is_not_reported_as_a_previous_revision_that_serves() -> None:
    """The pods that serve during the rebuild have the desired revision."""
    world = settled(resource())
    assert world.deployment is not None
    world.pods.append(pod("pair-abc", world.deployment["spec"]["template"], NOW))
    missing = "the list of the repository's files, which is missing (.manifest-f.json)"
    world.logs["pair-abc/server"] = report(missing)
    world.step()
    ready = world.condition("Ready")
    assert ready["reason"] == "VolumeDamaged"
    assert ready["message"].startswith(f"pod pair-abc waits for the repair of {missing}")
    assert ready["message"].endswith("; the desired revision still serves")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("EnginesReady", "EngineUnreadable"), ("ModelsFetched", "CheckpointUnreadable")],
)
def test_unreadable_files_are_reported_with_what_to_do(
    world: World, kind: str, reason: str
) -> None:
    """The condition of the engines stayed Built, and no condition named a remedy."""
    wait(world, DAMAGE)
    check(world)
    fail(world, reason)
    for type_ in (kind, "RepositoryReady", "Ready"):
        condition = world.condition(type_)
        assert (condition["status"], condition["reason"]) == ("False", reason)
        assert f"kubectl delete job {world.job('publish')}" in condition["message"]
    del world.jobs[world.job("publish")]
    world.step()
    world.finish(world.job("publish"), {})
    world.step()
    for type_ in (kind, "RepositoryReady"):
        assert world.condition(type_)["status"] == "True"


def test_rebuild_is_not_reported_as_a_previous_revision_that_serves(world: World) -> None:
    """The chain stops at the engines, and the pods that serve have the desired revision."""
    wait(world, DAMAGE)
    assert world.deployment is not None
    world.deployment["status"].update(readyReplicas=1)
    check(world)
    fail(world, "EngineDamaged", lost=["draft"])
    for reason in ("EngineDamaged", "Queued"):
        ready = world.condition("Ready")
        assert ready["reason"] == reason
        assert ready["message"].endswith("; the desired revision still serves")
        world.step()


def test_fetch_of_a_damaged_checkpoint_is_not_reported_as_a_previous_revision(
    world: World,
) -> None:
    """The chain stops before the desired revision is known, and the pods may have it already."""
    wait(world, DAMAGE)
    assert world.deployment is not None
    world.deployment["status"].update(readyReplicas=1)
    check(world)
    fail(world, "CheckpointDamaged")
    for reason in ("CheckpointDamaged", "Queued"):
        ready = world.condition("Ready")
        assert ready["reason"] == reason
        assert ready["message"].endswith("; the deployed revision still serves")
        world.step()


def test_lost_volume_is_not_reported_with_a_previous_revision_that_serves(world: World) -> None:
    """The chain stops at the claim, and the spec has not changed."""
    assert world.claim is not None
    world.claim["status"]["phase"] = "Lost"
    world.step()
    ready = world.condition("Ready")
    assert ready["reason"] == "ClaimLost"
    assert ready["message"].endswith("; the deployed revision still serves")
