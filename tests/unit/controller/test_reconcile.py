"""Reconciles against an API server in memory: order of writes, error policy and events."""

import asyncio
import logging
import re
from typing import Any

import pytest
from prometheus_client import REGISTRY
from typing_extensions import override

from specdec.api import names
from specdec.api.condition_types import MEASURED
from specdec.api.conditions import Condition, Status, Type
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import (
    AcceptedReason,
    CommonReason,
    EngineReason,
    Reason,
    RepositoryReason,
)
from specdec.api.value import REQUIRED
from specdec.backends.facts import Images
from specdec.cluster import Conflict, Rejected, Transient
from specdec.controller.queue import Result
from specdec.controller.reconcile import Reconciler
from specdec.pipeline.decide import Decision
from specdec.pipeline.observed import Observed, Ref
from support.fake_cluster import FakeCluster
from support.simulated_clock import simulated_clock
from unit.controller.decisions import DONE, IMAGES, KEY, Decided, child, resource


async def test_second_reconcile_writes_nothing() -> None:
    cluster = FakeCluster(resource())
    reconciler = Reconciler(cluster, IMAGES, Decided(apply=(child(),), requeue_after=5))
    assert await reconciler.reconcile(KEY) == Result(requeue_after=5)
    assert [call[:2] for call in cluster.writes()][:2] == [
        ("create", "Service"),
        ("apply_status", "SpeculativeModel"),
    ]
    cluster.calls.clear()
    assert await reconciler.reconcile(KEY) == Result(requeue_after=5)
    assert cluster.writes() == []


@simulated_clock
async def test_progress_is_written_at_most_every_five_seconds() -> None:
    cluster = FakeCluster(resource())
    reconciler = Reconciler(cluster, IMAGES)

    async def reconcile(status: Status, reason: Reason, message: str) -> float | None:
        conditions = (*DONE[:-1], Condition(Type.READY, status, reason, message))
        reconciler.decide = Decided(conditions=conditions, requeue_after=10)
        return (await reconciler.reconcile(KEY)).requeue_after

    def written() -> str:
        conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
        return str(conditions[-1]["message"])

    assert await reconcile("False", EngineReason.BUILDING, "1 %") == 10
    await asyncio.sleep(1)
    assert await reconcile("False", EngineReason.BUILDING, "1 %") == 10
    assert await reconcile("False", EngineReason.BUILDING, "20 %") == 4
    assert written() == "1 %"
    await asyncio.sleep(4)
    assert await reconcile("False", EngineReason.BUILDING, "90 %") == 10
    assert written() == "90 %"
    assert await reconcile("False", EngineReason.BUILD_FAILED, "full") == 10
    assert written() == "full"
    assert await reconcile("True", AcceptedReason.VALID, "fine") == 10
    assert written() == "fine"


async def test_status_has_generation_and_times_and_events_are_recorded_once() -> None:
    cluster = FakeCluster(resource())
    await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY)
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    assert status["observedGeneration"] == 3
    assert all(c["observedGeneration"] == 3 for c in status["conditions"])
    assert all(c["lastTransitionTime"].endswith("Z") for c in status["conditions"])
    # Nothing has changed, except that it serves now, and what was measured.
    expected = [c.type for c in DONE if c.type in (*MEASURED, Type.READY)]
    assert [t.condition.type for t in cluster.events] == expected


async def test_ready_has_events_only_for_changes_to_and_from_true() -> None:
    cluster = FakeCluster(resource())
    building = Condition(Type.READY, "False", EngineReason.BUILDING, "builds")
    publishing = Condition(Type.READY, "False", RepositoryReason.PUBLISHING, "publishes")
    for conditions in ((building,), (publishing,), (DONE[-1],), (building,), (publishing,)):
        await Reconciler(cluster, IMAGES, Decided(conditions=conditions)).reconcile(KEY)
    assert [t.condition.status for t in cluster.events] == ["True", "False"]


async def test_measurements_have_events_and_checks_that_pass_at_once_have_none() -> None:
    """Nothing is measured before a service is available, so the condition was never False."""
    cluster, kinds = FakeCluster(resource()), (Type.MEMORY_FITS, Type.OUTPUT_EQUIVALENT)
    passes: tuple[tuple[Status, Reason], ...] = (
        ("Unknown", CommonReason.WAITING),
        ("True", CommonReason.QUEUED),
    )
    for status, reason in passes:
        conditions = tuple(Condition(kind, status, reason, "fine") for kind in kinds)
        await Reconciler(cluster, IMAGES, Decided(conditions=conditions)).reconcile(KEY)
    assert [t.condition.type for t in cluster.events] == [Type.OUTPUT_EQUIVALENT]


async def test_missing_or_deleting_resource_is_left_alone() -> None:
    body = resource()
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for cluster in (FakeCluster(), FakeCluster(body)):
        assert (
            await Reconciler(cluster, IMAGES, Decided(apply=(child(),))).reconcile(KEY) == Result()
        )
        assert cluster.writes() == []


@pytest.mark.parametrize("kind", ["Job", "Secret"])
@pytest.mark.parametrize("how", ["deleted", "being deleted", "created again"])
async def test_a_reconcile_in_flight_creates_no_child_of_a_deleted_resource(
    kind: str, how: str
) -> None:
    cluster = FakeCluster(resource())

    class DeletedMeanwhile(Decided):
        @override
        def __call__(self, model: SpeculativeModel, live: Observed, images: Images) -> Decision:
            body = cluster.objects.pop(("SpeculativeModel", "pair"))
            if how == "being deleted":
                cluster.put({**body, "metadata": {**body["metadata"], "deletionTimestamp": "now"}})
            if how == "created again":
                cluster.put({**body, "metadata": {**body["metadata"], "uid": "another"}})
            return super().__call__(model, live, images)

    new = {**child(), "apiVersion": "v1", "kind": kind}
    reconciler = Reconciler(cluster, IMAGES, DeletedMeanwhile(apply=(new,)))
    assert await reconciler.reconcile(KEY) == Result(failed=True)
    assert cluster.writes() == []


async def test_a_read_older_than_the_last_event_is_a_conflict() -> None:
    """It delayed a change by 299 s: the next reconcile came with the next poll or resync."""
    cluster = FakeCluster(resource())
    reconciler = Reconciler(cluster, IMAGES, Decided())
    uid = cluster.objects["SpeculativeModel", "pair"]["metadata"]["uid"]
    reconciler.note(KEY, uid, 4)
    assert await reconciler.reconcile(KEY) == Result(failed=True)
    assert cluster.writes() == []

    reconciler.note(KEY, uid, 3)
    assert await reconciler.reconcile(KEY) == Result()

    reconciler.note(KEY, "deleted", 9)
    assert await reconciler.reconcile(KEY) == Result()


async def test_a_resource_that_a_read_does_not_show_yet_is_read_again_once() -> None:
    reconciler = Reconciler(FakeCluster(), IMAGES, Decided())
    reconciler.note(KEY, "uid", 1)
    assert await reconciler.reconcile(KEY) == Result(failed=True)
    assert await reconciler.reconcile(KEY) == Result()


async def test_invalid_spec_is_reported_with_field_and_value() -> None:
    body = resource()
    body["spec"]["runtime"]["backend"] = "Abacus"
    cluster = FakeCluster(body)
    assert await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY) == Result()
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    first, last = status["conditions"][0], status["conditions"][-1]
    assert (first["type"], first["reason"]) == ("Accepted", "InvalidSpec")
    assert "spec.runtime.backend" in first["message"]
    assert "Abacus" in first["message"]
    assert (last["type"], last["reason"]) == ("Ready", "InvalidSpec")
    assert status["phase"] == "Failed"


@pytest.mark.parametrize("part", ["build", "serving"])
@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"resources": {"limits": "x"}}, "limits"),
        ({"resources": {"requests": None}}, "requests"),
        ({"affinity": {"podAffinity": "near"}}, "podAffinity"),
        ({"affinity": {"podAffinity": {REQUIRED: {}}}}, f"podAffinity.{REQUIRED}"),
    ],
)
async def test_invalid_pod_fields_under_an_older_definition_are_named(
    part: str, members: dict[str, Any], field: str
) -> None:
    body = resource()
    body["spec"][part] = members
    cluster = FakeCluster(body)
    assert await Reconciler(cluster, IMAGES).reconcile(KEY) == Result()
    first = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"][0]
    assert (first["type"], first["reason"]) == ("Accepted", "InvalidSpec")
    assert first["message"].startswith(f"spec.{part}.{next(iter(members))}: ")
    assert f"{field} must " in first["message"]


@pytest.mark.parametrize("problem", [Conflict("changed"), Transient("no answer")])
async def test_transient_errors_back_off_and_leave_the_status(problem: Exception) -> None:
    cluster = FakeCluster(resource())
    cluster.fail["create", "Service"] = problem
    result = await Reconciler(cluster, IMAGES, Decided(apply=(child(),))).reconcile(KEY)
    assert result == Result(failed=True)
    assert "status" not in cluster.objects["SpeculativeModel", "pair"]


async def test_rejected_event_does_not_fail_the_reconcile() -> None:
    cluster = FakeCluster(resource())
    cluster.fail["create", "Event"] = Rejected(403, "Event", "forbidden")
    assert await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY) == Result()


async def test_traceback_of_an_internal_error_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(model: SpeculativeModel, observed: Observed, images: Images) -> Decision:
        raise KeyError("oops")

    reconciler = Reconciler(FakeCluster(resource()), IMAGES, broken)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert await reconciler.reconcile(KEY) == Result(failed=True)
    assert [record.exc_info is not None for record in caplog.records] == [True, False, False]


def raising(model: SpeculativeModel, observed: Observed, images: Images) -> Decision:
    raise KeyError("a secret value")


async def test_exception_of_a_decision_becomes_a_condition() -> None:
    cluster = FakeCluster(resource())
    before = REGISTRY.get_sample_value("specdec_reconcile_errors_total", {"kind": "bug"}) or 0
    assert await Reconciler(cluster, IMAGES, raising).reconcile(KEY) == Result(failed=True)
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    (ready,) = status["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "InternalError")
    assert ready["observedGeneration"] == status["observedGeneration"] == 3
    assert status["phase"] == "Failed"
    assert re.search(r"KeyError at specdec/controller/reconcile\.py:\d+", ready["message"])
    assert "secret" not in ready["message"]
    assert "\n" not in ready["message"]
    assert [t.condition.reason for t in cluster.events] == ["InternalError"]
    after = REGISTRY.get_sample_value("specdec_reconcile_errors_total", {"kind": "bug"})
    assert after == before + 1


async def test_internal_error_keeps_the_other_conditions_and_is_written_once() -> None:
    cluster = FakeCluster(resource())
    await Reconciler(cluster, IMAGES, Decided(status={"models": [{"role": "target"}]})).reconcile(
        KEY
    )
    old = cluster.objects["SpeculativeModel", "pair"]
    cluster.put({**old, "metadata": {**old["metadata"], "generation": 4}})
    reconciler = Reconciler(cluster, IMAGES, raising)
    for _ in range(3):
        await reconciler.reconcile(KEY)
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    *others, ready = status["conditions"]
    assert others == old["status"]["conditions"][:-1]
    assert (ready["observedGeneration"], status["observedGeneration"]) == (4, 4)
    assert status["models"] == [{"role": "target"}]
    assert [call[0] for call in cluster.writes()].count("apply_status") == 2
    # The next successful reconcile updates all conditions.
    await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY)
    conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    assert {c["observedGeneration"] for c in conditions} == {4}
    assert conditions[-1]["status"] == "True"


@pytest.mark.parametrize(
    "function",
    ["specdec.controller.reconcile.observe", "specdec.controller.reconcile.apply_decision"],
)
async def test_exception_before_or_after_a_decision_becomes_a_condition(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise TypeError

    monkeypatch.setattr(function, fails)
    cluster = FakeCluster(resource())
    assert await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY) == Result(failed=True)
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    assert status["conditions"][-1]["reason"] == "InternalError"


async def test_unreported_internal_error_is_logged_with_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(resource())
    cluster.fail["apply_status", "SpeculativeModel"] = Transient("no answer")
    assert await Reconciler(cluster, IMAGES, raising).reconcile(KEY) == Result(failed=True)
    assert "no answer" in caplog.text
    assert "KeyError" in caplog.text


async def test_existing_job_gets_labels_and_owner_and_keeps_its_spec() -> None:
    job = child("Job", "engine-1", "engine")
    job["metadata"]["labels"] = {names.MANAGED_BY: names.MANAGER, names.ENGINE: "k"}
    cluster = FakeCluster(resource(), {**job, "spec": {"template": "of another resource"}})
    desired = {**job, "metadata": {**job["metadata"], "labels": {**job["metadata"]["labels"]}}}
    desired["metadata"]["labels"][names.sharer("pair")] = ""
    await Reconciler(cluster, IMAGES, Decided(apply=(desired,))).reconcile(KEY)
    live = cluster.objects["Job", "engine-1"]
    assert live["spec"] == {"template": "of another resource"}
    assert names.sharer("pair") in live["metadata"]["labels"]
    assert cluster.managers == ["specdec-pair-membership"]


async def test_missing_shared_job_is_decided_again() -> None:
    job = child("Job", "engine-1", "engine")
    del job["spec"]
    cluster = FakeCluster(resource())
    assert await Reconciler(cluster, IMAGES, Decided(apply=(job,))).reconcile(KEY) == Result(
        failed=True
    )
    assert ("Job", "engine-1") not in cluster.objects


async def test_only_observed_objects_are_deleted_and_only_once() -> None:
    deleting = child("Job", "deleting", "fetch")
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster = FakeCluster(resource(), child("Job", "old", "fetch"), deleting)
    refs = tuple(Ref("batch/v1", "Job", name) for name in ("old", "deleting", "unknown"))
    await Reconciler(cluster, IMAGES, Decided(delete=refs)).reconcile(KEY)
    assert [c for c in cluster.calls if c[0] == "delete"] == [("delete", "Job", "old")]


async def test_job_is_deleted_only_after_the_status_has_its_report() -> None:
    cluster = FakeCluster(resource(), child("Job", "report", "publish"))
    decided = Decided(delete_last=(Ref("batch/v1", "Job", "report"),))
    reconciler = Reconciler(cluster, IMAGES, decided)
    error = Transient("the API server is restarting")
    cluster.fail_once["apply_status", "SpeculativeModel"] = iter([error])
    assert await reconciler.reconcile(KEY) == Result(failed=True)
    assert ("Job", "report") in cluster.objects
    await reconciler.reconcile(KEY)
    writes = [call[:2] for call in cluster.writes()]
    assert writes.index(("delete", "Job")) > writes.index(("create", "Event"))
    assert ("Job", "report") not in cluster.objects


async def test_foreign_object_of_the_same_name_is_refused_and_not_observed() -> None:
    foreign = child("Deployment", "pair", "server")
    foreign["metadata"]["labels"] = {"app": "web"}
    cluster = FakeCluster(resource(), foreign)
    decided = Decided(apply=(child("Deployment", "pair", "server"),))
    await Reconciler(cluster, IMAGES, decided).reconcile(KEY)
    assert decided.observed[0].deployments == {}
    conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    available = next(c for c in conditions if c["type"] == "Available")
    assert "rename the resource or delete that Deployment" in available["message"]
    assert not [c for c in cluster.calls if c[0] in ("apply", "patch")]


async def test_servers_are_observed_by_role_and_can_be_deleted() -> None:
    draft = child("Deployment", "pair-draft", "draft-server")
    cluster = FakeCluster(resource(), child("Deployment", "pair", "server"), draft)
    decided = Decided(delete=(Ref("apps/v1", "Deployment", "pair-draft"),))
    await Reconciler(cluster, IMAGES, decided).reconcile(KEY)
    assert set(decided.observed[0].deployments) == {"target", "draft"}
    deleted = [c for c in cluster.calls if c[0] == "delete"]
    assert deleted == [("delete", "Deployment", "pair-draft")]


async def test_deployment_of_a_resource_named_like_our_draft_server_is_foreign() -> None:
    foreign = child("Deployment", "pair-draft", "server")
    foreign["metadata"]["labels"][names.MODEL] = "pair-draft"
    cluster = FakeCluster(resource(), foreign)
    decided = Decided()
    await Reconciler(cluster, IMAGES, decided).reconcile(KEY)
    assert decided.observed[0].deployments == {}
