"""The claim: its size never shrinks, and its access mode never changes."""

from typing import Any

import pytest

from support.simulated_cluster import World, resource


@pytest.mark.parametrize(
    ("spec", "asked", "capacity", "size", "shrinks"),
    [
        ("1Gi", "1Gi", "1Gi", "1Gi", False),
        ("1024Mi", "1Gi", "1Gi", "1024Mi", False),
        ("2Gi", "1Gi", "1Gi", "2Gi", False),
        ("1Gi", "2Gi", "2Gi", "2Gi", True),
        ("1Gi", "2Gi", None, "2Gi", True),
        # After a failed expansion any size above the capacity may be requested.
        ("2Gi", "9Gi", "1Gi", "2Gi", False),
        ("1Gi", "9Gi", "1Gi", "9Gi", True),
    ],
)
def test_claim_request_never_shrinks(
    spec: str, asked: str, capacity: str | None, size: str, shrinks: bool
) -> None:
    world = World(resource(storage={"size": spec}))
    world.bind(size=asked)
    assert world.claim is not None
    if capacity:
        world.claim["status"]["capacity"] = {"storage": capacity}

    decision = world.step()

    assert decision.apply[0]["spec"]["resources"]["requests"]["storage"] == size
    condition = world.condition("StorageReady")
    assert (condition["status"], condition["reason"]) == ("True", "Bound")
    assert (f"it keeps {asked}, because a claim cannot shrink" in condition["message"]) == shrinks


SCALING = {"maxReplicas": 3, "metrics": [{"type": "Cpu", "target": "50"}]}


@pytest.mark.parametrize(
    ("serving", "mode", "created"),
    [
        ({}, None, "ReadWriteOnce"),
        ({"replicas": 2}, None, "ReadWriteMany"),
        ({"replicas": 1, "scaling": SCALING}, None, "ReadWriteMany"),
        ({"replicas": 2}, "ReadWriteOnce", "ReadWriteOnce"),
        ({}, "ReadWriteMany", "ReadWriteMany"),
    ],
)
def test_new_claim_has_the_mode_that_its_pods_need(
    serving: dict[str, Any], mode: str | None, created: str
) -> None:
    storage = {"size": "1Gi"} | ({"accessMode": mode} if mode else {})
    decision = World(resource(storage=storage, serving=serving)).step()
    assert decision.apply[0]["spec"]["accessModes"] == [created]


def test_existing_claim_keeps_its_mode_and_the_condition_reports_it() -> None:
    world = World(resource(storage={"size": "1Gi"}, serving={}))
    world.bind()
    world.step()
    assert "one node" not in world.condition("StorageReady")["message"]
    world.spec["serving"] = {"replicas": 2}

    decision = world.step()

    assert decision.apply[0]["spec"]["accessModes"] == ["ReadWriteOnce"]
    message = world.condition("StorageReady")["message"]
    assert "a claim keeps its mode, so all pods run on one node" in message


@pytest.mark.parametrize("replicas", [1, 2])
def test_pending_claim_of_several_nodes_names_what_classes_lack(replicas: int) -> None:
    world = World(resource(storage={"size": "1Gi"}, serving={"replicas": replicas}))
    world.bind()
    assert world.claim is not None
    world.claim["status"] = {"phase": "Pending"}
    world.step()
    message = world.condition("StorageReady")["message"]
    assert ("many storage classes have no ReadWriteMany" in message) == (replicas == 2)
