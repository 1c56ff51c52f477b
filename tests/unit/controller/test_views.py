"""How many requests a resource costs, and that copies are never more wrong than live reads."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from typing_extensions import override

from specdec.api.model import API_VERSION, KIND
from specdec.cluster import Rejected
from specdec.controller.runtime import Runtime
from specdec.controller.settings import Settings
from support.fake_cluster import Json
from support.living_cluster import JOB_SECONDS, LivingCluster
from support.simulated_clock import simulated_clock
from support.simulated_cluster import IMAGES, resource

READS = ("get", "list", "log")


class Operator:
    """A runtime on a `LivingCluster` that has connected its watches, and no resource yet."""

    def __init__(self, cluster: LivingCluster) -> None:
        self.cluster = cluster
        self.runtime = Runtime(Settings())
        self.queue = self.runtime.attach(cluster, IMAGES)
        cluster.listeners.append(self.runtime.resource_changed)

    async def connected(self) -> None:
        await asyncio.sleep(1)
        self.cluster.calls.clear()

    def condition(self, kind: str) -> Json:
        status = self.cluster.objects[KIND, "pair"].get("status", {})
        return next((c for c in status.get("conditions", []) if c["type"] == kind), {})

    async def until(self, kind: str, **expected: str) -> None:
        """Wait until a condition has these members, at most ten minutes."""
        for _ in range(6000):
            condition = self.condition(kind)
            if all(condition.get(key) == value for key, value in expected.items()):
                return
            await asyncio.sleep(0.1)
        raise TimeoutError(f"{kind} is {condition}")

    async def serve(self) -> None:
        self.cluster.put(resource())
        await self.until("Ready", status="True")

    def reads(self) -> list[tuple[str, str, str]]:
        return [call for call in self.cluster.calls if call[0] in READS]

    def count(self, verb: str, kind: str) -> int:
        return self.cluster.requests()[verb, kind]


async def fetching() -> Operator:
    """Return an operator with a resource whose fetch Job has run for half of its time."""
    operator = Operator(LivingCluster())
    await operator.connected()
    operator.cluster.put(resource())
    await asyncio.sleep(JOB_SECONDS / 2)
    return operator


@simulated_clock
async def test_a_resource_becomes_ready_without_reads_and_with_few_writes() -> None:
    operator = Operator(LivingCluster())
    await operator.connected()
    await operator.serve()
    assert operator.reads() == []
    assert operator.count("apply_status", KIND) <= 8
    assert operator.count("create", "Event") <= 6
    assert len(operator.cluster.calls) <= 26
    assert {verb for verb, _, _ in operator.cluster.calls} == {"create", "apply_status"}
    await operator.runtime.stop()


@simulated_clock
async def test_a_settled_resource_costs_no_request() -> None:
    operator = Operator(LivingCluster())
    await operator.connected()
    await operator.serve()
    await operator.until("OutputEquivalent", status="True")
    await asyncio.sleep(60)
    operator.cluster.calls.clear()
    await asyncio.sleep(3600)
    operator.queue.add(("demo", "pair"))
    await asyncio.sleep(60)
    assert operator.cluster.calls == []
    await operator.runtime.stop()


@simulated_clock
async def test_own_writes_cause_no_reconcile() -> None:
    operator = Operator(LivingCluster())
    await operator.connected()
    cluster, keys = operator.cluster, list[Any]()
    views = operator.runtime._views
    assert views is not None
    views.changed = keys.append
    cluster.put(resource())
    meta = {
        "name": "a",
        "namespace": "demo",
        "labels": {"app.kubernetes.io/managed-by": "specdec"},
    }
    intent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "1"}}
    await views.create(intent)
    await asyncio.sleep(1)
    await views.apply({**intent, "data": {"a": "2"}})
    await asyncio.sleep(1)
    assert [change[1]["kind"] for change in keys] == [KIND]
    live = await views.get("v1", "ConfigMap", "demo", "a")
    assert live is not None
    assert live["data"] == {"a": "2"}
    await views.delete(live)
    cluster.put({**live, "data": {"a": "3"}})
    await asyncio.sleep(1)
    assert [change[1]["kind"] for change in keys[1:] if change[1]] == ["ConfigMap"]
    await operator.runtime.stop()


@simulated_clock
async def test_a_change_of_the_spec_during_our_status_write_is_reconciled() -> None:
    """One event has both, with the version of our own write."""

    class Changing(LivingCluster):
        @override
        async def apply_status(self, body: Any, manager: str = "specdec") -> Json | None:
            if self.requests()["apply_status", KIND] == 0:
                old = self.objects[KIND, "pair"]
                self.put({**old, "spec": {**old["spec"], "suspend": True}})
            return await super().apply_status(body, manager)

    operator = Operator(Changing())
    await operator.connected()
    operator.cluster.put(resource())
    await operator.until("Ready", reason="Suspended")
    await operator.runtime.stop()


@simulated_clock
async def test_without_watches_reads_are_live_and_the_end_is_the_same() -> None:
    operator = await fetching()
    operator.cluster.lose_events = True
    operator.cluster.end_watches(500)
    await asyncio.sleep(0.5)
    operator.queue.add(("demo", "pair"))
    await asyncio.sleep(0.1)
    assert operator.count("list", "Job") > 0
    await asyncio.sleep(JOB_SECONDS)
    operator.cluster.lose_events = False
    operator.cluster.end_watches(410)
    await operator.until("Ready", status="True")
    await operator.runtime.stop()


@simulated_clock
async def test_lost_events_are_repaired_by_the_comparison() -> None:
    operator = await fetching()
    views = operator.runtime._views
    assert views is not None
    operator.cluster.lose_events = True
    await asyncio.sleep(JOB_SECONDS)
    operator.cluster.lose_events = False
    await views.compare()
    assert operator.condition("ModelsFetched")["status"] == "False"
    await views.compare()
    await operator.until("ModelsFetched", status="True")
    await operator.runtime.stop()


@simulated_clock
async def test_children_of_a_lost_deletion_are_not_created_again() -> None:
    """kopf lists anew after an expired watch, and sends no event of what was deleted before."""
    operator = Operator(LivingCluster())
    await operator.connected()
    await operator.serve()
    await operator.until("OutputEquivalent", status="True")
    cluster = operator.cluster
    cluster.objects.pop((KIND, "pair"))
    cluster.calls.clear()
    for kind, name in list(cluster.objects):
        cluster.remove(kind, name)
    await asyncio.sleep(30)
    assert [call for call in cluster.calls if call[0] != "get"] == []
    assert cluster.objects == {}
    await operator.runtime.stop()


@simulated_clock
async def test_nothing_is_deleted_because_of_a_copy_alone() -> None:
    """The copies lack the pod of a complete Job, whose result would seem lost."""
    operator = await fetching()
    cluster = operator.cluster
    views = operator.runtime._views
    assert views is not None
    (pods,) = views._views["v1", "Pod"]
    (pod,) = [name for name in pods._objects if "fetch" in name[1]]
    original = pods.put
    pods.put = lambda item: None  # type: ignore[method-assign]
    pods.forget(pod)
    job = next(name for kind, name in cluster.objects if kind == "Job")
    done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    await asyncio.sleep(JOB_SECONDS)
    cluster.change("Job", job, status={"succeeded": 1, "conditions": [done]})
    await asyncio.sleep(5)
    assert operator.count("delete", "Job") == 0
    assert ("Job", job) in cluster.objects
    pods.put = original  # type: ignore[method-assign]
    assert await views.live.get(API_VERSION, KIND, "demo", "pair") is not None
    await operator.runtime.stop()


def unlabelled(name: str = "pair") -> Json:
    meta = {"name": name, "namespace": "demo", "labels": {"app": "web"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web"}]}}
    spec = {"template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


@simulated_clock
async def test_object_of_another_owner_is_refused_until_it_is_deleted() -> None:
    """The view has no object without the operator's label, and the create request fails."""
    operator = Operator(LivingCluster())
    await operator.connected()
    cluster = operator.cluster
    cluster.put(unlabelled())
    cluster.put(resource())
    await operator.until("Available", status="False", reason="Rejected")
    assert "was not made for SpeculativeModel pair" in operator.condition("Available")["message"]
    assert cluster.objects["Deployment", "pair"]["spec"] == unlabelled()["spec"]
    cluster.remove("Deployment", "pair")
    operator.queue.add(("demo", "pair"))
    await operator.until("Ready", status="True")
    await operator.runtime.stop()


@pytest.mark.parametrize("restart", [False, True])
def test_labels_of_a_server_are_restored_and_it_stays_available(restart: bool) -> None:
    @simulated_clock
    async def scenario() -> None:
        operator = Operator(LivingCluster())
        await operator.connected()
        await operator.serve()
        await operator.until("OutputEquivalent", status="True")
        cluster = operator.cluster
        if restart:
            await operator.runtime.stop()
        live = cluster.objects["Deployment", "pair"]
        meta = {key: value for key, value in live["metadata"].items() if key != "labels"}
        cluster.put({**live, "metadata": meta})
        if restart:
            operator = Operator(cluster)
            operator.runtime.resource_changed(cluster.objects[KIND, "pair"])
        cluster.calls.clear()
        await asyncio.sleep(60)
        restored = cluster.objects["Deployment", "pair"]["metadata"]
        assert restored["labels"] == live["metadata"]["labels"]
        assert ("create", "Deployment", "pair") not in cluster.calls
        assert [call for call in cluster.calls if call[0] == "apply_status"] == []
        assert operator.condition("Ready")["status"] == "True"
        await operator.runtime.stop()

    scenario()


@pytest.mark.parametrize(
    ("changed", "again"), [({"status": {"observedGeneration": 1}}, False), ({"more": 1}, True)]
)
def test_change_since_a_read_is_decided_again_unless_only_the_status_has_changed(
    changed: Json, again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A change of the spec may have been based on something that has changed."""

    @simulated_clock
    async def scenario() -> None:
        operator = Operator(LivingCluster())
        await operator.connected()
        await operator.serve()
        await operator.until("OutputEquivalent", status="True")
        cluster = operator.cluster
        cluster.lose_events = True
        cluster.change("Deployment", "pair", **changed)
        cluster.lose_events = False
        old = cluster.objects[KIND, "pair"]
        cluster.put({**old, "spec": {**old["spec"], "suspend": True}})
        await asyncio.sleep(10)
        assert cluster.objects["Deployment", "pair"]["spec"]["replicas"] == 0
        assert operator.count("list", "Deployment") == 1
        await operator.runtime.stop()

    with caplog.at_level("INFO"):
        scenario()
    assert ("Deployment pair has changed; requeueing" in caplog.text) == again


@simulated_clock
async def test_late_copies_of_pods_cause_no_false_status() -> None:
    """The watch of pods is late by a minute: a complete Job seems to have lost its result."""
    operator = Operator(LivingCluster())
    await operator.connected()
    cluster = operator.cluster
    views = operator.runtime._views
    assert views is not None
    (pods,) = views._views["v1", "Pod"]
    pods.put = lambda item: None  # type: ignore[method-assign]
    statuses: list[Json] = []
    cluster.listeners.append(lambda body, _: statuses.append(body.get("status", {})))
    cluster.put(resource())
    await operator.until("Ready", status="True")
    assert operator.count("delete", "Job") == 0
    assert "Failed" not in {status.get("phase") for status in statuses}
    await operator.runtime.stop()


@pytest.mark.parametrize("fault", ["outdated", "ended"])
def test_watch_that_ends_at_once_starts_again_with_growing_pauses(fault: str) -> None:
    class Ending(LivingCluster):
        @override
        async def stream(self, *place: Any) -> AsyncGenerator[Json]:
            self._record("watch", place[1], "")
            if fault == "outdated":
                yield {"type": "ERROR", "object": {"code": 410, "message": "too old"}}

    @simulated_clock
    async def scenario() -> None:
        operator = Operator(Ending())
        await operator.connected()
        await asyncio.sleep(120)
        assert 5 <= operator.count("watch", "Job") <= 10
        await operator.serve()
        await operator.runtime.stop()

    scenario()


@simulated_clock
async def test_a_defect_in_an_event_does_not_end_a_watch() -> None:
    operator = Operator(LivingCluster())
    await operator.connected()
    for _, _, events in operator.cluster._watches:
        events.put_nowait({"type": "MODIFIED", "object": {}})
    await asyncio.sleep(5)
    operator.runtime.check_health()
    await operator.serve()
    await operator.runtime.stop()


@simulated_clock
async def test_removed_right_to_a_kind_is_reported_while_its_watch_goes_on() -> None:
    operator = Operator(LivingCluster())
    await operator.connected()
    await operator.serve()
    await operator.until("OutputEquivalent", status="True")
    views, cluster = operator.runtime._views, operator.cluster
    assert views is not None
    cluster.fail["list", "Pod"] = Rejected(403, "Pod", "cannot list resource")
    await views.compare()
    await operator.until("Ready", status="False", reason="Rejected")
    cluster.fail.clear()
    await views.compare()
    await operator.until("Ready", status="True")
    await operator.runtime.stop()
