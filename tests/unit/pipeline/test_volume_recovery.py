"""A pod that ends while it loads files causes a check for files deleted from the volume."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from specdec.tools.dry_run.simulated_cluster import Json
from support.simulated_cluster import NOW, World, fetched, resource, settled


@pytest.fixture
def world() -> World:
    return settled(resource())


def crash(world: World, at: datetime = NOW, **end: Any) -> None:
    """Add a pod of the live revision that ended after three seconds and was never ready."""
    assert world.deployment is not None
    world.deployment["status"].update(readyReplicas=0)
    template = world.deployment["spec"]["template"]
    metadata = {
        "name": "pair-abc",
        "labels": template["metadata"]["labels"],
        "creationTimestamp": "2026-01-02T03:00:00Z",
    }
    terminated = {
        "exitCode": 1,
        "message": "failed to load",
        "startedAt": (at - timedelta(seconds=3)).isoformat(),
        "finishedAt": at.isoformat(),
        **end,
    }
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    container = {"state": state, "lastState": {"terminated": terminated}, "restartCount": 1}
    status = {"phase": "Running", "containerStatuses": [container]}
    world.pods.append({"metadata": metadata, "spec": template["spec"], "status": status})


def fail(world: World, reason: str) -> None:
    """End the check of the volume with the report of a missing file."""
    error = f'{{"error": {{"reason": "{reason}", "message": "missing"}}}}'
    world.fail(world.job("publish"), error)


def finish(world: World, component: str, result: Json) -> None:
    for name in world.named(component):
        if "status" not in world.jobs[name]:
            world.finish(name, result)


def check(world: World) -> None:
    """Check that the crash causes a new publish Job, which checks the volume."""
    world.step()
    condition = world.condition("RepositoryReady")
    assert (condition["status"], condition["reason"]) == ("False", "Publishing")
    assert "the volume is checked again" in condition["message"]
    assert "pair-abc ended while it loaded" in condition["message"]
    assert world.named("publish") == []
    world.step()
    assert len(world.named("publish")) == 1


def test_complete_volume_is_checked_once(world: World) -> None:
    crash(world)
    check(world)
    finish(world, "publish", {})
    world.step()
    assert world.condition("RepositoryReady")["status"] == "True"
    assert world.condition("Available")["reason"] == "CrashLoop"
    # The kubelet restarts the server, which crashes again.
    crash(world, NOW + timedelta(seconds=30))
    world.step()
    assert world.condition("RepositoryReady")["status"] == "True"
    status = world.cr["status"]["repository"]
    status["checkedAt"] = (NOW - timedelta(hours=1)).isoformat()
    check(world)


def test_startup_timeout_causes_no_check(world: World) -> None:
    crash(world, startedAt=(NOW - timedelta(days=1)).isoformat())
    world.step()
    assert world.condition("RepositoryReady")["status"] == "True"
    assert world.condition("Available")["reason"] == "StartupTimeout"


@pytest.mark.parametrize("end", [{"reason": "OOMKilled"}, {"startedAt": "2026-01-02T02:00:00Z"}])
def test_only_an_end_while_loading_causes_a_check(world: World, end: Json) -> None:
    crash(world, **end)
    # The pod became unready long after its start, so it had been ready.
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:00:00Z"}
    world.pods[-1]["status"]["conditions"] = [ready]
    world.step()
    assert world.condition("RepositoryReady")["status"] == "True"


def test_a_lost_engine_is_built_again(world: World) -> None:
    builds = world.named("engine")
    crash(world)
    check(world)
    fail(world, "EngineMissing")
    world.step()
    assert world.condition("EnginesReady")["reason"] == "EngineMissing"
    assert world.condition("ModelsFetched")["status"] == "True"
    world.step()
    assert sorted(world.named("engine")) == sorted(builds)
    assert world.condition("EnginesReady")["reason"] == "Queued"
    heal(world)


def test_a_lost_checkpoint_is_fetched_again(world: World) -> None:
    crash(world)
    check(world)
    fail(world, "CheckpointMissing")
    world.step()
    condition = world.condition("ModelsFetched")
    assert (condition["status"], condition["reason"]) == ("False", "CheckpointMissing")
    assert world.cr["status"]["models"] == []
    assert world.named("publish") == []
    world.step()
    assert len(world.named("fetch")) == 1
    finish(world, "fetch", fetched())
    world.step()
    # Engines on the volume are not built again.
    assert world.condition("EnginesReady")["status"] == "True"
    heal(world)


def heal(world: World) -> None:
    world.settle()
    world.pods = [pod for pod in world.pods if pod["metadata"]["name"] != "pair-abc"]
    world.serve()
    world.step()
    assert world.condition("Ready")["status"] == "True"


def test_suspended_resource_checks_nothing(world: World) -> None:
    crash(world)
    world.spec["suspend"] = True
    world.step()
    assert world.cr["status"]["repository"]["hash"]
