"""The NetworkPolicies of Jobs, which exist before the Service that remembers optional kinds."""

import pytest

from specdec.desired import isolation
from support.simulated_cluster import World, resource


@pytest.mark.parametrize("steps", [2, 4, 20])
def test_policies_are_deleted_when_they_are_switched_off(steps: int) -> None:
    world = World(resource(networking={"networkPolicy": {"mode": "Enabled"}}))
    policies = isolation.possible_names(world.model())
    for _ in range(steps):
        world.step()
        if world.claim is None:
            world.bind()
    if steps == 20:
        world.settle()
    assert {("NetworkPolicy", name) for name in policies} <= world.optional_objects.keys()

    world.spec["networking"]["networkPolicy"]["mode"] = "Disabled"
    world.step()

    assert not [name for kind, name in world.optional_objects if kind == "NetworkPolicy"]
