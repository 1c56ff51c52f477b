"""Refused children are reported in their condition; some refusals are retried soon."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from specdec.api import names
from specdec.api.conditions import Condition, Type
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.api.reasons import EngineReason, ScalingReason, StorageReason
from specdec.cluster import Missing, Rejected
from specdec.controller.queue import Result
from specdec.controller.reconcile import NOT_READY_REQUEUE_AFTER, REFUSED_REQUEUE_AFTER, Reconciler
from support.fake_cluster import FakeCluster
from unit.controller.decisions import (
    DONE,
    IMAGES,
    KEY,
    Decided,
    child,
    resource,
)

SCALING = Condition(
    Type.SCALING_READY, "Unknown", ScalingReason.SCALER_STARTING, "not reconciled yet"
)
BUDGET = child("ConfigMap", "after", "network")


@pytest.mark.parametrize(
    ("kind", "error", "reason", "message"),
    [
        ("ScaledObject", Missing(404, "ScaledObject", "not found"), "KedaMissing", "install KEDA"),
        (
            "HorizontalPodAutoscaler",
            Rejected(403, "HorizontalPodAutoscaler pair", "exceeded quota: few"),
            "Rejected",
            "exceeded quota: few",
        ),
    ],
)
async def test_refused_optional_object_is_reported_and_stops_nothing(
    kind: str, error: Exception, reason: str, message: str
) -> None:
    cluster = FakeCluster(resource())
    cluster.fail["create", kind] = error
    extra = {**child(kind, component="scaling"), "apiVersion": OPTIONAL_KINDS[kind].version}
    decided = Decided(conditions=(*DONE, SCALING), apply=(extra, BUDGET), requeue_after=5)
    reconciler = Reconciler(cluster, IMAGES, decided)
    assert await reconciler.reconcile(KEY) == Result(requeue_after=5)
    conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    by_type = {c["type"]: c for c in conditions}
    assert by_type["ScalingReady"]["reason"] == reason
    assert message in by_type["ScalingReady"]["message"]
    assert by_type["Ready"]["status"] == "True"
    assert ("ConfigMap", "after") in cluster.objects, "the object after it was not applied"
    reconciler.decide = Decided(conditions=(*DONE, SCALING), apply=(extra, BUDGET))
    assert await reconciler.reconcile(KEY) == Result(requeue_after=REFUSED_REQUEUE_AFTER)


async def test_refused_child_is_reported_in_its_condition_with_the_servers_message() -> None:
    cluster = FakeCluster(resource())
    cluster.fail["create", "Service"] = Rejected(403, "Service pair", "exceeded quota: few")
    result = await Reconciler(cluster, IMAGES, Decided(apply=(child(),))).reconcile(KEY)
    assert result == Result(requeue_after=REFUSED_REQUEUE_AFTER)
    conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    by_type = {c["type"]: c for c in conditions}
    assert by_type["Available"]["reason"] == "Rejected"
    assert "exceeded quota: few" in by_type["Available"]["message"]
    assert by_type["Ready"]["reason"] == "Rejected"
    assert by_type["RepositoryReady"]["status"] == "True"


async def test_missing_right_on_a_child_is_reported_with_what_to_do() -> None:
    cluster = FakeCluster(resource())
    forbidden = (
        'services "pair" is forbidden: User "system:serviceaccount:specdec-system:operator" '
        'cannot create resource "services" in API group "" in the namespace "demo"'
    )
    cluster.fail["create", "Service"] = Rejected(403, "Service pair", forbidden)
    await Reconciler(cluster, IMAGES, Decided(apply=(child(),))).reconcile(KEY)
    conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    by_type = {c["type"]: c["message"] for c in conditions}
    for kind in ("Available", "Ready"):
        assert by_type[kind].endswith(
            f"{forbidden}: apply manifests/install/rbac.yaml or upgrade the chart"
        )


async def test_claim_without_an_owner_is_reported_with_the_command_that_sets_it() -> None:
    """An admission plugin lets only those set an owner who may delete the object."""
    owner = {"kind": "SpeculativeModel", "name": "pair", "uid": "uid-pair"}
    claim = child("PersistentVolumeClaim", "pair-models", "storage")
    intent = {**claim, "metadata": {**claim["metadata"], "ownerReferences": [owner]}}
    cluster = FakeCluster(resource(), claim)
    message = "forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>"
    cluster.fail["apply", "PersistentVolumeClaim"] = Rejected(403, "claim pair-models", message)
    await Reconciler(cluster, IMAGES, Decided(conditions=DONE, apply=(intent,))).reconcile(KEY)
    conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    (storage,) = (c["message"] for c in conditions if c["type"] == "StorageReady")
    assert storage.endswith(
        "claim pair-models has lost its owner, and Kubernetes would keep it when the resource is "
        "deleted; the operator may not set the owner, because it may not delete claims: kubectl "
        "-n ns patch pvc pair-models --type=merge -p "
        """'{"metadata":{"ownerReferences":[{"kind":"SpeculativeModel","name":"pair","""
        """"uid":"uid-pair"}]}}'"""
    )


async def test_refused_measurement_is_unknown_and_leaves_ready_alone() -> None:
    cluster = FakeCluster(resource())
    cluster.fail["create", "Job"] = Rejected(403, "Job pair-verify", "exceeded quota: few")
    job = child("Job", "pair-verify", "verify")
    result = await Reconciler(cluster, IMAGES, Decided(apply=(job,))).reconcile(KEY)
    assert result == Result(requeue_after=REFUSED_REQUEUE_AFTER)
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    by_type = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    assert by_type["SpeculationActive"] == ("Unknown", "Rejected")
    assert by_type["Ready"] == ("True", "Valid")
    assert status["phase"] == "Serving"


async def test_unknown_definition_is_retried_soon_and_not_reported() -> None:
    cluster = FakeCluster(resource())
    message = "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for ..."
    cluster.fail["create", "Service"] = Rejected(403, "Service pair", message)
    reconciler = Reconciler(cluster, IMAGES, Decided(apply=(child(),)))
    for _ in range(3):
        assert await reconciler.reconcile(KEY) == Result(requeue_after=NOT_READY_REQUEUE_AFTER)
    assert "status" not in cluster.objects["SpeculativeModel", "pair"]
    cluster.fail.clear()
    assert await reconciler.reconcile(KEY) == Result()
    assert ("Service", "pair") in cluster.objects


async def test_key_of_a_group_is_created_once_and_never_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = FakeCluster(resource())
    secret = child("Secret", "pair-group", "server")
    for _ in range(2):
        await Reconciler(cluster, IMAGES, Decided(apply=(secret,))).reconcile(KEY)
    key = cluster.objects["Secret", "pair-group"]["stringData"]["key"]
    assert len(bytes.fromhex(key)) == 32
    assert not [
        call for call in cluster.calls if call[:2] in (("get", "Secret"), ("list", "Secret"))
    ]
    assert key not in caplog.text
    assert key not in str(cluster.objects["SpeculativeModel", "pair"])


async def test_cluster_without_leader_worker_sets_gets_a_fix() -> None:
    cluster = FakeCluster(resource())
    group = {**child(names.GROUP_KIND, "pair-group", "server"), "apiVersion": names.GROUP_API}
    cluster.fail["create", names.GROUP_KIND] = Missing(404, "LeaderWorkerSet", "not found")
    result = await Reconciler(cluster, IMAGES, Decided(apply=(group,))).reconcile(KEY)
    assert result == Result(requeue_after=REFUSED_REQUEUE_AFTER)
    conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    available = next(c for c in conditions if c["type"] == "Available")
    assert available["reason"] == "LeaderWorkerSetMissing"
    assert "install the LeaderWorkerSet controller" in available["message"]


async def test_refused_change_of_a_claim_keeps_ready_and_stops_nothing() -> None:
    claim = child("PersistentVolumeClaim", "pair-models", "storage")
    cluster = FakeCluster(resource(), {**claim, "spec": {"size": "old"}})
    message = "only dynamically provisioned pvc can be resized"
    cluster.fail["apply", "PersistentVolumeClaim"] = Rejected(403, "claim pair-models", message)
    bound = tuple(
        Condition(c.type, "True", StorageReason.BOUND, "claim pair-models is bound")
        if c.type == Type.STORAGE_READY
        else c
        for c in DONE
    )
    decided = Decided(conditions=bound, apply=(claim, BUDGET))
    assert await Reconciler(cluster, IMAGES, decided).reconcile(KEY) == Result(
        requeue_after=REFUSED_REQUEUE_AFTER
    )
    conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    by_type = {c["type"]: c for c in conditions}
    assert by_type["StorageReady"]["status"] == "True"
    assert by_type["StorageReady"]["reason"] == "Bound"
    assert message in by_type["StorageReady"]["message"]
    assert by_type["Ready"]["status"] == "True"
    assert ("ConfigMap", "after") in cluster.objects, "the object after it was not applied"


async def test_refused_change_of_a_server_is_reported_and_stops_nothing() -> None:
    server = child("Deployment", "pair", "server")
    old = {**server, "spec": {"template": {"spec": {"containers": []}, "metadata": {}}}}
    cluster = FakeCluster(resource(), old)
    cluster.fail["apply", "Deployment"] = Rejected(403, "Deployment pair", "a policy")
    await Reconciler(cluster, IMAGES, Decided(apply=(server, BUDGET))).reconcile(KEY)
    conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    by_type = {c["type"]: c["reason"] for c in conditions}
    assert by_type["Available"] == by_type["Ready"] == "Rejected"
    assert ("ConfigMap", "after") in cluster.objects, "the object after it was not applied"


async def test_refused_config_map_stops_the_job_that_reads_it() -> None:
    files = child("ConfigMap", "pair-publish", "publish")
    job = child("Job", "pair-publish", "publish")
    cluster = FakeCluster(resource(), {**files, "data": {"a": "old"}})
    cluster.fail["apply", "ConfigMap"] = Rejected(403, "ConfigMap pair-publish", "a policy")
    await Reconciler(cluster, IMAGES, Decided(apply=(files, job))).reconcile(KEY)
    assert ("Job", "pair-publish") not in cluster.objects


class Strict(FakeCluster):
    """Rejects a status with a message longer than `longest` characters."""

    longest = 32768

    @override
    async def apply_status(
        self, body: Mapping[str, Any], manager: str = names.MANAGER
    ) -> dict[str, Any] | None:
        self.calls.append(("try_status", body["kind"], body["metadata"]["name"]))
        longest = max(len(c["message"]) for c in body["status"]["conditions"])
        if longest > self.longest:
            name = body["metadata"]["name"]
            raise Rejected(422, f"SpeculativeModel {name}", "message: Too long")
        return await super().apply_status(body, manager)


async def test_refusal_of_any_length_is_cut_in_the_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Strict(resource())
    refusal = "exceeded quota: few, " + "and " * 10_000 + "more"
    cluster.fail["create", "Service"] = Rejected(403, "Service pair", refusal)
    with caplog.at_level(logging.INFO):
        result = await Reconciler(cluster, IMAGES, Decided(apply=(child(),))).reconcile(KEY)
    assert result == Result(requeue_after=REFUSED_REQUEUE_AFTER)
    conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    by_type = {c["type"]: c for c in conditions}
    for kind in ("Available", "Ready"):
        message = by_type[kind]["message"]
        assert "exceeded quota: few" in message
        assert len(message) <= 1024
        assert message.endswith(" and…")
    assert refusal in caplog.text


async def test_refused_status_is_written_in_a_shorter_form() -> None:
    cluster = Strict(resource(status={"models": [{"role": "target"}]}))
    cluster.longest = 100
    conditions = (
        *DONE[:-1],
        Condition(Type.READY, "False", EngineReason.BUILDING, "text " * 100),
    )
    reconciler = Reconciler(cluster, IMAGES, Decided(conditions=conditions, requeue_after=5))
    for _ in range(2):
        assert await reconciler.reconcile(KEY) == Result(requeue_after=5)
        reconciler.forget(KEY)  # the next write need not wait
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    assert status["models"] == [{"role": "target"}]
    assert status["observedGeneration"] == 3
    assert [c["reason"] for c in status["conditions"]] == [c.reason for c in conditions]
    assert {c["observedGeneration"] for c in status["conditions"]} == {3}
    assert len({c["message"] for c in status["conditions"]}) == 1
    writes = [verb for verb, kind, _ in cluster.calls if verb == "apply_status"]
    assert writes == ["apply_status"]
    # Once the server accepts it, the full status is written.
    cluster.longest = 1024
    await reconciler.reconcile(KEY)
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    assert status["conditions"][-1]["message"].startswith("text text")


async def test_forbidden_status_stays_a_rejection() -> None:
    cluster = FakeCluster(resource())
    cluster.fail["apply_status", "SpeculativeModel"] = Rejected(403, "SpeculativeModel pair", "no")
    assert await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY) == Result(
        requeue_after=REFUSED_REQUEUE_AFTER
    )
    assert [verb for verb, _, _ in cluster.calls].count("apply_status") == 1


async def test_suspend_and_scale_are_carried_out_although_the_claim_is_refused() -> None:
    """A claim without labels and owner stopped the chain before the Deployment."""
    stripped = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "pair", "namespace": "ns"},
    }
    cluster = FakeCluster(resource(), stripped)
    claim = child("PersistentVolumeClaim", component="storage")
    scaled = child("ConfigMap", "scaled", "network")
    decided = Decided(conditions=DONE, apply=(claim, BUDGET), rescale=(scaled,))
    await Reconciler(cluster, IMAGES, decided).reconcile(KEY)
    assert ("ConfigMap", "scaled") in cluster.objects
    assert ("ConfigMap", "after") not in cluster.objects
    conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    (storage,) = (c for c in conditions if c["type"] == "StorageReady")
    assert storage["reason"] == "Rejected"
    label = (
        "kubectl -n ns label --overwrite pvc pair app.kubernetes.io/managed-by=specdec "
        "specdec.dev/model=pair"
    )
    assert label in storage["message"]
    assert "delete that" not in storage["message"]


@pytest.mark.parametrize("kind", ["Job", "Pod", "Service", "ConfigMap"])
async def test_removed_right_to_read_a_kind_is_reported_in_the_status(kind: str) -> None:
    """Every resource kept the status of its old generation, and only the log named the right."""
    cluster = FakeCluster(resource())
    error = f'User "operator" cannot list resource "{kind}"'
    reconciler = Reconciler(cluster, IMAGES, Decided())
    await reconciler.reconcile(KEY)
    cluster.events.clear()
    cluster.fail["list", kind] = Rejected(403, kind, error)
    assert await reconciler.reconcile(KEY) == Result(requeue_after=REFUSED_REQUEUE_AFTER)
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    (ready,) = (c for c in status["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Rejected")
    assert ready["observedGeneration"] == 3
    assert error in ready["message"]
    assert "manifests/install/rbac.yaml" in ready["message"]
    (event,) = cluster.events
    assert (event.condition.reason, event.warning) == ("Rejected", True)
    cluster.fail.clear()
    await reconciler.reconcile(KEY)
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    assert {c["reason"] for c in status["conditions"] if c["type"] == "Ready"} == {"Valid"}
