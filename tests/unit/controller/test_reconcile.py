"""One reconcile against an API server in memory: order, policy, events and what is not written."""

import logging
import re
from typing import Any

import pytest
from prometheus_client import REGISTRY

from specdec.api import names
from specdec.api.conditions import OPTIONAL, Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.api.value import REQUIRED
from specdec.backends.facts import Images
from specdec.cluster import Conflict, Rejected, Transient
from specdec.controller.queue import ReconcileResult
from specdec.controller.reconcile import Reconciler
from specdec.pipeline.decide import Decision
from specdec.pipeline.observed import Observed, Ref
from unit.controller.fakes import FakeCluster

KEY = ("ns", "pair")
IMAGES = Images("operator:1", "reference:1")
DONE = tuple(Condition(t, "True", "Valid", "fine") for t in Type if t not in OPTIONAL)


def resource(**members: Any) -> dict[str, Any]:
    source = {"pvc": {"claimName": "pair", "path": "target"}}
    return {
        "apiVersion": "specdec.dev/v1alpha1",
        "kind": "SpeculativeModel",
        "metadata": {"name": "pair", "namespace": "ns", "uid": "uid-pair", "generation": 3},
        "spec": {
            "runtime": {"backend": "Reference"},
            "target": {"source": source},
            "speculation": {"method": "None"},
            "storage": {"size": "1Gi"},
        },
        **members,
    }


def child(kind: str = "Service", name: str = "pair", component: str = "network") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": {
                names.MANAGED_BY: names.MANAGER,
                names.MODEL: "pair",
                names.COMPONENT: component,
            },
        },
        "spec": {"ports": [{"name": "http", "port": 8000}]},
    }


class Decided:
    """A decision that a test writes down."""

    def __init__(self, **members: Any) -> None:
        self.decision = Decision(**{"conditions": DONE, "status": {"phase": "Serving"}, **members})
        self.observed: list[Observed] = []

    def __call__(self, model: SpeculativeModel, observed: Observed, images: Images) -> Decision:
        self.observed.append(observed)
        return self.decision


async def test_the_second_reconcile_writes_nothing() -> None:
    cluster = FakeCluster(resource())
    reconciler = Reconciler(cluster, IMAGES, Decided(apply=(child(),), requeue_after=5))
    assert await reconciler.reconcile(KEY) == ReconcileResult(requeue_after=5)
    assert [call[:2] for call in cluster.writes()][:2] == [
        ("apply", "Service"),
        ("apply_status", "SpeculativeModel"),
    ]
    cluster.calls.clear()
    assert await reconciler.reconcile(KEY) == ReconcileResult(requeue_after=5)
    assert cluster.writes() == []


async def test_status_carries_generation_and_times_and_events_come_once() -> None:
    cluster = FakeCluster(resource())
    await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY)
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    assert status["observedGeneration"] == 3
    assert all(c["observedGeneration"] == 3 for c in status["conditions"])
    assert all(c["lastTransitionTime"].endswith("Z") for c in status["conditions"])
    assert [t.condition.type for t in cluster.events] == [one.type for one in DONE]


async def test_ready_is_told_only_when_it_becomes_true_or_ceases_to_be() -> None:
    cluster = FakeCluster(resource())
    building = Condition(Type.READY, "False", "Building", "builds")
    publishing = Condition(Type.READY, "False", "Publishing", "publishes")
    for conditions in ((building,), (publishing,), (DONE[-1],), (building,), (publishing,)):
        await Reconciler(cluster, IMAGES, Decided(conditions=conditions)).reconcile(KEY)
    assert [t.condition.status for t in cluster.events] == ["True", "False"]


async def test_a_resource_that_is_gone_or_going_is_left_alone() -> None:
    body = resource()
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for cluster in (FakeCluster(), FakeCluster(body)):
        assert (
            await Reconciler(cluster, IMAGES, Decided(apply=(child(),))).reconcile(KEY)
            == ReconcileResult()
        )
        assert cluster.writes() == []


async def test_a_spec_that_cannot_be_read_is_said_with_field_and_value() -> None:
    body = resource()
    body["spec"]["runtime"]["backend"] = "Abacus"
    cluster = FakeCluster(body)
    assert await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY) == ReconcileResult()
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
async def test_pod_shaped_fields_of_an_older_definition_are_refused_by_name(
    part: str, members: dict[str, Any], field: str
) -> None:
    body = resource()
    body["spec"][part] = members
    cluster = FakeCluster(body)
    assert await Reconciler(cluster, IMAGES).reconcile(KEY) == ReconcileResult()
    first = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"][0]
    assert (first["type"], first["reason"]) == ("Accepted", "InvalidSpec")
    assert first["message"].startswith(f"spec.{part}.{next(iter(members))}: ")
    assert f"{field} must " in first["message"]


@pytest.mark.parametrize("problem", [Conflict("changed"), Transient("no answer")])
async def test_what_may_pass_backs_off_without_touching_the_status(problem: Exception) -> None:
    cluster = FakeCluster(resource())
    cluster.fail["apply", "Service"] = problem
    result = await Reconciler(cluster, IMAGES, Decided(apply=(child(),))).reconcile(KEY)
    assert result == ReconcileResult(failed=True)
    assert "status" not in cluster.objects["SpeculativeModel", "pair"]


async def test_an_event_that_cannot_be_written_fails_nothing() -> None:
    cluster = FakeCluster(resource())
    cluster.fail["create", "Event"] = Rejected(403, "Event", "forbidden")
    assert await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY) == ReconcileResult()


async def test_a_bug_is_told_with_its_traceback_once(caplog: pytest.LogCaptureFixture) -> None:
    def broken(model: SpeculativeModel, observed: Observed, images: Images) -> Decision:
        raise KeyError("oops")

    reconciler = Reconciler(FakeCluster(resource()), IMAGES, broken)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert await reconciler.reconcile(KEY) == ReconcileResult(failed=True)
    assert [record.exc_info is not None for record in caplog.records] == [True, False, False]


def raising(model: SpeculativeModel, observed: Observed, images: Images) -> Decision:
    raise KeyError("a value that nobody may read")


async def test_an_exception_of_a_decision_becomes_a_condition() -> None:
    cluster = FakeCluster(resource())
    before = REGISTRY.get_sample_value("specdec_reconcile_errors_total", {"kind": "bug"}) or 0
    assert await Reconciler(cluster, IMAGES, raising).reconcile(KEY) == ReconcileResult(
        failed=True
    )
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    (ready,) = status["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "InternalError")
    assert ready["observedGeneration"] == status["observedGeneration"] == 3
    assert status["phase"] == "Failed"
    assert re.search(r"KeyError at specdec/controller/reconcile\.py:\d+", ready["message"])
    assert "a value" not in ready["message"]
    assert "\n" not in ready["message"]
    assert [t.condition.reason for t in cluster.events] == ["InternalError"]
    after = REGISTRY.get_sample_value("specdec_reconcile_errors_total", {"kind": "bug"})
    assert after == before + 1


async def test_a_defect_keeps_the_other_conditions_and_is_written_once() -> None:
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
    # What is decided again names every condition of its own generation.
    await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY)
    conditions = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    assert {c["observedGeneration"] for c in conditions} == {4}
    assert conditions[-1]["status"] == "True"


@pytest.mark.parametrize(
    "place", ["specdec.controller.reconcile.observe", "specdec.controller.reconcile.act"]
)
async def test_an_exception_around_a_decision_becomes_a_condition_too(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise TypeError

    monkeypatch.setattr(place, fails)
    cluster = FakeCluster(resource())
    assert await Reconciler(cluster, IMAGES, Decided()).reconcile(KEY) == ReconcileResult(
        failed=True
    )
    status = cluster.objects["SpeculativeModel", "pair"]["status"]
    assert status["conditions"][-1]["reason"] == "InternalError"


async def test_a_defect_that_cannot_be_written_is_logged_with_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(resource())
    cluster.fail["apply_status", "SpeculativeModel"] = Transient("no answer")
    assert await Reconciler(cluster, IMAGES, raising).reconcile(KEY) == ReconcileResult(
        failed=True
    )
    assert "no answer" in caplog.text
    assert "KeyError" in caplog.text


async def test_a_live_job_is_joined_and_never_applied_again() -> None:
    job = child("Job", "engine-1", "engine")
    job["metadata"]["labels"] = {names.MANAGED_BY: names.MANAGER, names.ENGINE: "k"}
    cluster = FakeCluster(resource(), {**job, "spec": {"template": "of another resource"}})
    wanted = {**job, "metadata": {**job["metadata"], "labels": {**job["metadata"]["labels"]}}}
    wanted["metadata"]["labels"][names.sharer("pair")] = ""
    await Reconciler(cluster, IMAGES, Decided(apply=(wanted,))).reconcile(KEY)
    live = cluster.objects["Job", "engine-1"]
    assert live["spec"] == {"template": "of another resource"}
    assert names.sharer("pair") in live["metadata"]["labels"]
    assert cluster.managers == ["specdec-pair-membership"]


async def test_a_job_to_join_that_is_gone_is_decided_again() -> None:
    job = child("Job", "engine-1", "engine")
    del job["spec"]
    cluster = FakeCluster(resource())
    assert await Reconciler(cluster, IMAGES, Decided(apply=(job,))).reconcile(
        KEY
    ) == ReconcileResult(failed=True)
    assert ("Job", "engine-1") not in cluster.objects


async def test_only_what_was_seen_and_is_not_on_its_way_out_is_deleted() -> None:
    going = child("Job", "going", "fetch")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster = FakeCluster(resource(), child("Job", "old", "fetch"), going)
    refs = tuple(Ref("batch/v1", "Job", name) for name in ("old", "going", "unknown"))
    await Reconciler(cluster, IMAGES, Decided(delete=refs)).reconcile(KEY)
    assert [c for c in cluster.calls if c[0] == "delete"] == [("delete", "Job", "old")]


async def test_a_namesake_of_somebody_else_is_refused_and_not_observed() -> None:
    theirs = child("Deployment", "pair", "server")
    theirs["metadata"]["labels"] = {"app": "web"}
    cluster = FakeCluster(resource(), theirs)
    decided = Decided(apply=(child("Deployment", "pair", "server"),))
    await Reconciler(cluster, IMAGES, decided).reconcile(KEY)
    assert decided.observed[0].deployments == {}
    found = cluster.objects["SpeculativeModel", "pair"]["status"]["conditions"]
    available = next(c for c in found if c["type"] == "Available")
    assert "rename the resource or delete that Deployment" in available["message"]
    assert not [c for c in cluster.calls if c[0] == "apply"]


async def test_our_own_status_write_is_known_as_an_echo_and_a_changed_spec_is_not() -> None:
    cluster = FakeCluster(resource())
    reconciler = Reconciler(cluster, IMAGES, Decided())
    await reconciler.reconcile(KEY)
    version = cluster.objects["SpeculativeModel", "pair"]["metadata"]["resourceVersion"]
    assert reconciler.is_echo(KEY, (version, 3))
    assert not reconciler.is_echo(KEY, (version, 4))
    reconciler.forget(KEY)
    assert not reconciler.is_echo(KEY, (version, 3))


async def test_each_server_is_observed_by_its_role_and_may_be_deleted() -> None:
    draft = child("Deployment", "pair-draft", "draft-server")
    cluster = FakeCluster(resource(), child("Deployment", "pair", "server"), draft)
    decided = Decided(delete=(Ref("apps/v1", "Deployment", "pair-draft"),))
    await Reconciler(cluster, IMAGES, decided).reconcile(KEY)
    assert set(decided.observed[0].deployments) == {"target", "draft"}
    deleted = [c for c in cluster.calls if c[0] == "delete"]
    assert deleted == [("delete", "Deployment", "pair-draft")]


async def test_the_deployment_of_a_resource_called_like_our_draft_s_server_is_its_own() -> None:
    theirs = child("Deployment", "pair-draft", "server")
    theirs["metadata"]["labels"][names.MODEL] = "pair-draft"
    cluster = FakeCluster(resource(), theirs)
    decided = Decided()
    await Reconciler(cluster, IMAGES, decided).reconcile(KEY)
    assert decided.observed[0].deployments == {}
