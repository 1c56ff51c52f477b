"""Suspension and scaling, also while another revision is built."""

from typing import Any

import pytest

from specdec.api import names
from specdec.pipeline.decide import decide
from specdec.pipeline.stage import POLL
from support.simulated_cluster import World, limits, resource, settled, source


def test_zero_replicas_are_not_deployed() -> None:
    world = settled(resource(serving={"replicas": 0}))
    assert world.condition("Ready")["reason"] == "NotDeployed"


def test_suspension_deletes_pods_and_keeps_engines() -> None:
    world = settled(resource())
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
    world = settled(resource())
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
    world = settled(resource(target=target))
    assert world.deployment is not None
    template = world.deployment["spec"]["template"]
    world.spec["target"]["limits"]["maxSeqLen"] = 400
    world.spec["serving"] = {"replicas": 3}

    decision = world.step()

    assert world.condition("EnginesReady")["status"] == "False"
    assert world.deployment["spec"]["replicas"] == 3
    assert world.deployment["spec"]["template"] == template
    assert decision.requeue_after == POLL


def serving_pod(name: str) -> dict[str, Any]:
    labels = {names.COMPONENT: names.SERVERS["target"], names.MODEL: "pair"}
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "deletionTimestamp": "2026-01-02T03:09:05Z",
        },
        "spec": {"containers": []},
        "status": {"phase": "Running"},
    }


def test_suspended_is_reported_only_when_no_pod_is_left() -> None:
    world = settled(resource())
    world.spec["suspend"] = True
    world.pods.append(serving_pod("pair-5d9-x2"))
    decision = world.step()
    for kind in ("Available", "Ready"):
        condition = world.condition(kind)
        assert (condition["status"], condition["reason"]) == ("False", "Stopping")
        assert "these pods have not ended yet: pair-5d9-x2" in condition["message"]
    assert world.cr["status"]["phase"] == "Starting"
    assert decision.requeue_after == POLL
    world.pods.pop()
    world.step()
    assert world.condition("Ready")["reason"] == "Suspended"


def test_ended_jobs_of_a_deleted_claim_go_and_the_claim_is_not_reported_as_kept() -> None:
    """Their pods held the claim in Terminating for ever."""
    world = settled(resource())
    assert world.claim is not None
    assert world.jobs
    world.claim["metadata"]["deletionTimestamp"] = "2026-01-02T03:09:05Z"
    world.pods.append(serving_pod("pair-5d9-x2"))
    world.step()
    assert world.jobs == {}
    condition = world.condition("StorageReady")
    assert condition["reason"] == "ClaimLost"
    assert "it exists until these pods end: pair-5d9-x2: copy what you" in condition["message"]
    world.spec["suspend"] = True
    world.pods.pop()
    world.step()
    message = world.condition("Ready")["message"]
    assert "the pods are deleted, but the engines are not kept: claim pair" in message
    assert "claim are kept" not in message


def test_a_refused_claim_comes_with_the_live_workload_to_scale() -> None:
    world = settled(resource())

    def rescaled() -> list[int]:
        decision = decide(world.model(), world.observed(), world.images)
        objects = (obj for obj in decision.rescale if obj["kind"] == "Deployment")
        return [obj["spec"]["replicas"] for obj in objects]

    assert rescaled() == []
    world.spec["suspend"] = True
    assert rescaled() == [0]


def test_columns_have_no_measurement_without_replicas() -> None:
    world = settled(resource())
    columns = world.cr["status"]["columns"]
    assert {"acceptance", "speed"} <= set(columns)
    world.spec["serving"] = {"replicas": 0}
    world.step()
    assert set(world.cr["status"]["columns"]) == {"ready"}


@pytest.mark.parametrize("patch", [{"suspend": True}, {"serving": {"replicas": 0}}])
def test_the_status_names_no_serving_revision_without_a_pod(patch: dict[str, object]) -> None:
    world = settled(resource())
    assert world.cr["status"]["serving"]["revision"]
    world.spec.update(patch)
    world.settle()
    assert world.cr["status"]["replicas"] == 0
    assert "serving" not in world.cr["status"]


def test_new_claim_of_a_suspended_resource_keeps_no_engines() -> None:
    """An empty claim replaced a deleted one, and the engines were reported as kept."""
    world = settled(resource())
    world.spec["suspend"] = True
    world.step()
    assert "engines and claim are kept" in world.condition("Ready")["message"]
    world.jobs.clear()
    world.bind(uid="uid-another")
    world.step()
    assert world.condition("Ready")["message"].endswith("the pods are deleted, the claim is kept")
