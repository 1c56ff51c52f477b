"""Available needs a Service that leads to the ready pods."""

import dataclasses
from datetime import timedelta

import pytest

from specdec.pipeline.decide import Decision, decide
from support.simulated_cluster import NOW, World, resource, settled


def decided(world: World, endpoints: dict[str, int]) -> Decision:
    observed = dataclasses.replace(world.observed(), endpoints=endpoints)
    return decide(world.model(), observed, world.images)


def served(seconds: float) -> World:
    """Return a serving world with a pod that has been ready for this many seconds."""
    world = settled(resource())
    assert world.deployment is not None
    since = (NOW - timedelta(seconds=seconds)).isoformat()
    template = world.deployment["spec"]["template"]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    metadata = {"labels": template["metadata"]["labels"], "creationTimestamp": since}
    world.pods.append(
        {
            "metadata": {"name": "pair-abc", **metadata},
            "spec": template["spec"],
            "status": {"phase": "Running", "conditions": [ready]},
        }
    )
    return world


@pytest.mark.parametrize(
    ("endpoints", "seconds", "status", "reason"),
    [
        ({"pair": 1}, 3600, "True", "PodsReady"),
        ({"pair": 0}, 1, "False", "Starting"),
        ({"pair": 0}, 3600, "False", "NoEndpoints"),
        # The Service does not exist yet: the same decision applies it.
        ({}, 3600, "True", "PodsReady"),
    ],
)
def test_available_needs_ready_endpoints(
    endpoints: dict[str, int], seconds: float, status: str, reason: str
) -> None:
    decision = decided(served(seconds), endpoints)
    available = next(c for c in decision.conditions if c.type == "Available")
    assert (available.status, available.reason) == (status, reason)
    assert decision.conditions[-1].status == status
    assert (decision.requeue_after is None) == (status == "True")
