"""TwoServers: a repository, a Deployment and a Service for each model, and one condition."""

import pytest

from specdec.api import names
from specdec.triton import start
from support.simulated_cluster import World, fetched, settled, waiting
from unit.pipeline.tensorrt import Json, put, tensorrt

DRAFT = "speculation.draftTarget"


def two_servers(**serving: object) -> Json:
    cr = put(tensorrt(serving=serving), f"{DRAFT}.topology", "TwoServers")
    put(cr, "target.parallelism.tensor", 2)
    return put(cr, f"{DRAFT}.placement", "Dedicated")


@pytest.fixture
def world() -> World:
    return settled(two_servers())


def command(world: World, name: str) -> list[str]:
    (container,) = world.deployments[name]["spec"]["template"]["spec"]["containers"]
    return start.server(container["command"])


def test_each_server_has_its_part_of_one_repository(world: World) -> None:
    revision = world.cr["status"]["repository"]["hash"]
    root = f"--model-repository=/models/repositories/{revision}"

    target, draft = command(world, "pair"), command(world, "pair-draft")

    assert (target[0], draft[0]) == ("mpirun", "tritonserver")
    assert f"{root}/target" in target
    assert f"{root}/draft" in draft
    assert len(world.named("publish")) == 1
    assert world.cr["status"]["serving"]["revision"] == revision
    gpus = {
        name: d["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        for name, d in world.deployments.items()
    }
    assert gpus == {"pair": {"nvidia.com/gpu": "2"}, "pair-draft": {"nvidia.com/gpu": "1"}}


def test_services_reach_their_own_pods_only(world: World) -> None:
    for name, other in (("pair", "pair-draft"), ("pair-draft", "pair")):
        selector = world.services[name]["spec"]["selector"].items()
        pods = {n: d["spec"]["template"]["metadata"] for n, d in world.deployments.items()}
        assert selector <= pods[name]["labels"].items()
        assert not selector <= pods[other]["labels"].items()


def test_the_status_has_the_address_of_each_server(world: World) -> None:
    status = world.cr["status"]
    assert status["endpoints"] == [
        {"role": role, "url": f"http://{name}.demo.svc:8000", "grpc": f"{name}.demo.svc:8001"}
        for role, name in (("target", "pair"), ("draft", "pair-draft"))
    ]
    assert status["url"] == status["endpoints"][0]["url"]


def test_available_waits_for_both(world: World) -> None:
    message = world.condition("Available")["message"]
    assert "1 of 1 pods of the target ready" in message
    assert "1 of 1 pods of the draft ready" in message

    world.deployments["pair-draft"]["status"]["readyReplicas"] = 0
    decision = world.step()

    assert world.condition("Available")["status"] == "False"
    assert world.cr["status"]["readyReplicas"] == 0
    assert decision.requeue_after is not None
    assert "Deployment pair-draft" in world.condition("Available")["message"]


def test_available_reports_the_failing_pod_of_the_draft(world: World) -> None:
    world.deployments["pair-draft"]["status"]["readyReplicas"] = 0
    live = world.deployments["pair-draft"]
    labels = live["spec"]["template"]["metadata"]["labels"]
    stamp = "2026-01-01T00:00:00Z"
    metadata = {"name": "pair-draft-x", "labels": labels, "creationTimestamp": stamp}
    status = waiting("ErrImagePull", "no such image")
    world.pods.append({"metadata": metadata, "spec": {}, "status": status})

    world.step()

    assert world.condition("Available")["reason"] == "ImagePullFailed"
    assert "pair-draft-x" in world.condition("Available")["message"]


def test_both_are_suspended_and_scaled(world: World) -> None:
    for replicas, suspend in ((0, True), (3, False)):
        world.spec["suspend"] = suspend
        world.spec["serving"] = {"replicas": replicas or 3}
        world.step()
        assert [d["spec"]["replicas"] for d in world.deployments.values()] == [replicas] * 2


def test_both_are_scaled_while_another_revision_is_built(world: World) -> None:
    before = {name: command(world, name) for name in world.deployments}
    put(world.cr, "target.limits.maxSeqLen", 384)
    world.spec["serving"] = {"replicas": 2}

    world.step()

    assert world.condition("EnginesReady")["status"] == "False"
    assert [d["spec"]["replicas"] for d in world.deployments.values()] == [2, 2]
    assert {name: command(world, name) for name in world.deployments} == before


def test_draft_server_is_deleted_when_one_server_serves(world: World) -> None:
    put(put(world.cr, f"{DRAFT}.topology", "SingleServer"), f"{DRAFT}.placement", "Shared")
    world.step()
    assert set(world.deployments) == {"pair", "pair-draft"}
    # The old servers serve while the new revision is built.
    assert len(world.cr["status"]["endpoints"]) == 2

    world.settle()

    assert set(world.deployments) == set(world.services) == {"pair"}
    assert [entry["role"] for entry in world.cr["status"]["endpoints"]] == ["target"]
    assert world.condition("Ready")["status"] == "True"


def test_draft_server_is_created_with_the_new_revision() -> None:
    world = settled(tensorrt())
    served = command(world, "pair")
    put(put(world.cr, f"{DRAFT}.topology", "TwoServers"), f"{DRAFT}.placement", "Dedicated")

    world.step()
    assert command(world, "pair") == served
    assert set(world.services) == {"pair"}
    world.settle(lambda component: fetched() if component == "fetch" else {})

    assert set(world.deployments) == set(world.services) == {"pair", "pair-draft"}
    component = world.deployments["pair-draft"]["metadata"]["labels"][names.COMPONENT]
    assert component == "draft-server"
