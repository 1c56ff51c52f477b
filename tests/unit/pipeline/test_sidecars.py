"""The condition Available for pods with sidecars beside the server."""

from typing import Any

import pytest

from specdec.pipeline.pods import diagnosis
from unit.pipeline.test_serving import crashed, deployed, pod

SIDECAR = {
    "name": "shipper",
    "image": "registry.example/shipper:1",
    "resources": {"limits": {"memory": "128Mi"}},
}


@pytest.mark.parametrize(
    ("end", "reason", "text"),
    [
        ({}, "CrashLoop", "container shipper of pod pair-abc restarted 3 times"),
        (
            {"reason": "OOMKilled"},
            "OutOfMemory",
            "container shipper of pod pair-abc: the container was killed at its memory limit of "
            "128Mi: raise that limit",
        ),
        (
            # A sidecar may end after any time: only the server has a startup budget.
            {"finishedAt": "2026-01-02T03:31:00Z"},
            "CrashLoop",
            "container shipper of pod pair-abc restarted 3 times",
        ),
    ],
)
def test_available_names_the_sidecar_that_ended(
    end: dict[str, Any], reason: str, text: str
) -> None:
    world = deployed(serving={"sidecars": [SIDECAR]})
    (failed,) = crashed(5, **end)["containerStatuses"]
    server = {"name": "server", "ready": True, "state": {"running": {}}}
    status = {"phase": "Running", "containerStatuses": [server]}
    pod(world, {**status, "initContainerStatuses": [{**failed, "name": "shipper"}]})
    world.step()
    condition = world.condition("Available")
    assert condition["reason"] == reason
    assert text in condition["message"]


@pytest.mark.parametrize("name", ["certificate", "istio-proxy"])
def test_available_names_the_container_beside_the_server_that_ended(name: str) -> None:
    """Like a sidecar, the container may end after any time; a service mesh may have added it."""
    world = deployed(serving={"tls": {"secretName": "certificate"}})
    (failed,) = crashed(5, finishedAt="2026-01-02T03:31:00Z")["containerStatuses"]
    server = {"name": "server", "ready": True, "state": {"running": {}}}
    statuses = [server, {**failed, "name": name}]
    pod(world, {"phase": "Running", "containerStatuses": statuses})
    world.step()
    condition = world.condition("Available")
    assert condition["reason"] == "CrashLoop"
    assert f"container {name} of pod pair-abc restarted 3 times" in condition["message"]


@pytest.mark.parametrize(
    ("sidecar", "server", "text"),
    [
        (
            {"started": False, "ready": False},
            {"state": {"waiting": {"reason": "PodInitializing"}}},
            "pod pair-abc waits for container shipper, whose startup probe has not passed yet",
        ),
        (
            {"started": True, "ready": False},
            {"state": {"running": {}}, "started": True, "ready": True},
            "pod pair-abc waits for container shipper, whose readiness probe fails",
        ),
        (
            {"started": True, "ready": False},
            {"state": {"running": {}}, "started": False, "ready": False},
            "pair-abc loads its models",
        ),
        (
            {"started": True, "ready": True},
            {"state": {"running": {}}, "started": False, "ready": False},
            "pair-abc loads its models",
        ),
    ],
)
def test_available_names_the_sidecar_that_a_pod_waits_for(
    sidecar: dict[str, Any], server: dict[str, Any], text: str
) -> None:
    world = deployed(serving={"sidecars": [SIDECAR]})
    running = {"name": "shipper", "state": {"running": {}}, **sidecar}
    status = {"phase": "Pending", "containerStatuses": [{"name": "server", **server}]}
    pod(world, {**status, "initContainerStatuses": [running]})
    world.step()
    condition = world.condition("Available")
    assert (condition["reason"], condition["status"]) == ("Starting", "False")
    assert text in condition["message"]


def test_ended_sidecar_is_no_sign_of_a_damaged_volume() -> None:
    (ended,) = crashed(5)["containerStatuses"]
    server = {"containerStatuses": [{"name": "server", **ended}]}
    meta = {"metadata": {"name": "pair-abc"}}
    assert diagnosis.ended_while_loading({**meta, "status": server}, 1800)
    beside = {**meta, "status": {"initContainerStatuses": [{"name": "shipper", **ended}]}}
    assert diagnosis.ended_while_loading(beside, 1800) is None
