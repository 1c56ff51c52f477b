"""The size requested of an existing claim: never less than it requests already."""

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
