"""The reconcile that changes the pods reports Available for the new pods, not the old ones."""

from typing import Any

import pytest

from specdec.cluster import Rejected
from specdec.controller.queue import Result
from specdec.controller.reconcile import Reconciler
from specdec.pipeline.stage import POLL
from support.fake_cluster import FakeCluster
from unit.controller.decisions import IMAGES, KEY, Decided, child, resource


def server(memory: str, **more: Any) -> dict[str, Any]:
    containers = [{"name": "server", "resources": {"limits": {"memory": memory}}}]
    template = {"metadata": {}, "spec": {"containers": containers}}
    return {**child("Deployment", "pair", "server"), "spec": {"template": template, **more}}


def conditions(cluster: FakeCluster) -> dict[str, Any]:
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]}


async def test_changed_pod_template_is_reported_before_any_new_pod_starts() -> None:
    cluster = FakeCluster(resource(), server("2Gi"))
    result = await Reconciler(cluster, IMAGES, Decided(apply=(server("20Mi"),))).reconcile(KEY)
    assert result == Result(requeue_after=POLL)
    message = "Deployment pair replaces its pods; before that: fine"
    written = conditions(cluster)
    assert written["Available"] == written["Ready"] == ("False", "Starting", message)
    assert cluster.objects["SpeculativeModel", "pair"]["status"]["phase"] == "Starting"


@pytest.mark.parametrize("component", ["verify", "benchmark"])
@pytest.mark.parametrize(("memory", "starts"), [("20Mi", False), ("2Gi", True)])
async def test_nothing_is_measured_before_changed_pods_are_available(
    memory: str, starts: bool, component: str
) -> None:
    """The decision saw the old pods, which were available."""
    cluster = FakeCluster(resource(), server("2Gi"))
    job = child("Job", "pair-measures", component)
    await Reconciler(cluster, IMAGES, Decided(apply=(server(memory), job))).reconcile(KEY)
    assert (("Job", "pair-measures") in cluster.objects) == starts


@pytest.mark.parametrize(
    "live",
    [server("2Gi", replicas=2), {**server("2Gi"), "metadata": child()["metadata"]}],
    ids=["replicas", "labels"],
)
async def test_other_changes_keep_ready(live: dict[str, Any]) -> None:
    cluster = FakeCluster(resource(), live)
    await Reconciler(cluster, IMAGES, Decided(apply=(server("2Gi", replicas=1),))).reconcile(KEY)
    assert ("apply", "Deployment", "pair") in cluster.calls
    assert conditions(cluster)["Ready"][0] == "True"


async def test_spec_is_replaced_only_if_the_merge_is_invalid() -> None:
    """The API server refuses the merged Service, which would have two ports with one name."""
    for code, writes in ((422, ["apply", "patch", "apply"]), (403, ["apply"])):
        cluster = FakeCluster(resource(), {**child(), "spec": {"ports": []}})
        refusals = iter([Rejected(code, "Service pair", "Duplicate value")])
        cluster.fail_once["apply", "Service"] = refusals
        await Reconciler(cluster, IMAGES, Decided(apply=(child(),))).reconcile(KEY)
        assert [c[0] for c in cluster.writes() if c[1] == "Service"] == writes


async def test_claim_spec_is_never_replaced() -> None:
    claim = child("PersistentVolumeClaim", "pair-models", "storage")
    cluster = FakeCluster(resource(), {**claim, "spec": {}})
    cluster.fail["apply", claim["kind"]] = Rejected(422, "claim", "spec is immutable")
    await Reconciler(cluster, IMAGES, Decided(apply=(claim,))).reconcile(KEY)
    assert ("patch", claim["kind"], "pair-models") not in cluster.calls
