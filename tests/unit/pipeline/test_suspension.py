"""Suspension and scaling, also while another revision is built."""

from specdec.api import names
from support.simulated_cluster import World, limits, resource, source


def test_zero_replicas_are_not_deployed() -> None:
    world = World(resource(serving={"replicas": 0}))
    world.settle()
    assert world.condition("Ready")["reason"] == "NotDeployed"


def test_suspension_deletes_pods_and_keeps_engines() -> None:
    world = World(resource())
    world.settle()
    world.spec["suspend"] = True

    decision = world.step()

    assert world.deployment is not None
    assert world.deployment["spec"]["replicas"] == 0
    assert world.condition("Ready")["reason"] == "Suspended"
    assert world.cr["status"]["phase"] == "Suspended"
    assert world.condition("EnginesReady")["status"] == "True"
    assert len(world.named("engine")) == 2
    assert decision.delete == ()

    world.spec["suspend"] = False
    world.settle()
    assert world.deployment["spec"]["replicas"] == 1
    assert world.condition("Ready")["status"] == "True"


def test_suspension_stops_unfinished_jobs_and_makes_none() -> None:
    world = World(resource())
    world.bind()
    world.step()
    assert world.named("fetch")
    world.spec["suspend"] = True

    world.step()
    assert world.jobs == {}
    decision = world.step()

    assert world.jobs == {}
    assert decision.requeue_after is None
    assert world.condition("ModelsFetched")["reason"] == "Suspended"


def test_suspension_during_a_build_deletes_the_live_pods() -> None:
    world = World(resource())
    world.settle()
    served = world.cr["status"]["serving"]["revision"]
    world.spec["target"]["limits"]["maxSeqLen"] = 400
    world.spec["suspend"] = True

    world.step()

    assert world.deployment is not None
    assert world.deployment["spec"]["replicas"] == 0
    assert world.deployment["metadata"]["annotations"][names.REPOSITORY] == served
    assert len(world.named("engine")) == 2


def test_scaling_does_not_wait_for_a_build() -> None:
    target = {"source": source("target"), "limits": limits(), "gpu": {"deviceIds": [0]}}
    world = World(resource(target=target))
    world.settle()
    assert world.deployment is not None
    template = world.deployment["spec"]["template"]
    world.spec["target"]["limits"]["maxSeqLen"] = 400
    world.spec["serving"] = {"replicas": 3}

    decision = world.step()

    assert world.condition("EnginesReady")["status"] == "False"
    assert world.deployment["spec"]["replicas"] == 3
    assert world.deployment["spec"]["template"] == template
    assert decision.requeue_after == 5
