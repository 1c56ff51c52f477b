"""The watch monitor detects dead watches, and never reports a live watch."""

import asyncio
from typing import Any

import pytest
from typing_extensions import override

from specdec.api.model import KIND
from specdec.cluster import Transient
from specdec.controller import probe
from specdec.controller.queue import Result, WorkQueue
from specdec.controller.runtime import Runtime
from specdec.controller.settings import Settings
from specdec.controller.watch_monitor import RECONCILE_AFTER, STALLED_AFTER, WatchMonitor
from support.fake_cluster import FakeCluster
from support.simulated_clock import simulated_clock
from unit.controller.decisions import resource

Json = dict[str, Any]
SECONDS = 60.0


def meta(uid: str = "one", version: str = "1") -> Json:
    return {"uid": uid, "resourceVersion": version, "namespace": "ns", "name": uid}


def test_idle_cluster_is_not_stalled() -> None:
    monitor = WatchMonitor()
    monitor.record(meta(), 0)
    for round_ in range(1, 50):
        assert monitor.compare("Job", [meta()], round_) == []
        monitor.retain(["one"], round_)
    assert monitor.stale_object is None


def test_constantly_changing_object_is_not_stalled() -> None:
    monitor = WatchMonitor()
    for round_ in range(50):
        # The list is newer than the last event; the next event has not arrived yet.
        monitor.record(meta(version=f"{2 * round_}"), round_)
        monitor.compare("Job", [meta(version=f"{2 * round_ + 1}")], round_ + 0.5)
        monitor.record(meta(version=f"{2 * round_ + 1}"), round_ + 0.6)
    assert monitor.stale_object is None


@pytest.mark.parametrize("known", [True, False], ids=["changed", "new"])
def test_missed_change_is_reconciled_and_then_stalled(known: bool) -> None:
    monitor = WatchMonitor()
    if known:
        monitor.record(meta(), 0)
    for count in range(1, STALLED_AFTER + 1):
        assert monitor.stale_object is None
        overdue = monitor.compare("Job", [meta(version="2")], count)
        assert overdue == (["one"] if count >= RECONCILE_AFTER else [])
        monitor.retain(["one"], count)
    assert monitor.stale_object == "Job ns/one"
    monitor.record(meta(version="2"), STALLED_AFTER + 1)
    assert monitor.stale_object is None


def test_event_during_the_list_request_counts() -> None:
    monitor = WatchMonitor()
    for count in range(2 * STALLED_AFTER):
        monitor.record(meta(version=f"{count + 1}"), count + 0.5)
        assert monitor.compare("Job", [meta(version=f"{count}")], count) == []
    assert monitor.stale_object is None


def test_deleted_objects_are_dropped_and_new_ones_kept() -> None:
    monitor = WatchMonitor()
    monitor.record(meta("deleted"), 0)
    for count in range(1, STALLED_AFTER):
        monitor.compare("Job", [meta("deleted", "2")], count)
    monitor.record(meta("new"), STALLED_AFTER + 0.5)  # created after the list was requested
    monitor.retain([], STALLED_AFTER)
    assert monitor.compare("Job", [meta("new")], STALLED_AFTER + 1) == []
    assert monitor.stale_object is None
    monitor.record(meta("new"), STALLED_AFTER + 2, deleted=True)
    assert not monitor._versions


class Api(FakeCluster):
    """Lists its objects, or fails while `broken`."""

    broken = False

    @override
    async def list_metadata(
        self, api_version: str, kind: str, namespace: str | None, selector: str = ""
    ) -> list[Json]:
        if self.broken:
            raise Transient("no answer")
        return [item["metadata"] for (k, _), item in self.objects.items() if k == kind]


class Watching(Runtime):
    """A runtime without a login, whose reconciles only record their keys."""

    def __init__(self, cluster: Api) -> None:
        super().__init__(Settings())
        self.reconciled: list[tuple[str, str]] = []

        async def reconcile(key: tuple[str, str]) -> Result:
            self.reconciled.append(key)
            return Result()

        self._queue = queue = WorkQueue(reconcile)
        self._last_resync = asyncio.get_running_loop().time()
        self._tasks = [
            asyncio.create_task(queue.run(), name="queue"),
            asyncio.create_task(self._check_watches(cluster, queue), name="watch check"),
        ]

    def healthy(self) -> bool:
        self._last_resync = asyncio.get_running_loop().time()
        try:
            self.check_health()
        except probe.UnhealthyError:
            return False
        return True


@simulated_clock
async def test_dead_watch_is_reconciled_and_fails_the_probe() -> None:
    cluster = Api(resource())
    runtime = Watching(cluster)
    runtime.resource_changed(cluster.objects[KIND, "pair"], deleted=False)
    await asyncio.sleep(10 * SECONDS)
    assert (runtime.reconciled, runtime.healthy()) == ([], True)
    cluster.put(resource(spec={}))  # causes no watch event
    await asyncio.sleep(2.5 * SECONDS)
    assert (set(runtime.reconciled), runtime.healthy()) == ({("ns", "pair")}, True)
    await asyncio.sleep(STALLED_AFTER * SECONDS)
    with pytest.raises(probe.UnhealthyError, match="SpeculativeModel ns/pair"):
        runtime.check_health()
    runtime.resource_changed(cluster.objects[KIND, "pair"])
    assert runtime.healthy()
    await runtime.stop()


@simulated_clock
async def test_api_server_outage_is_not_a_dead_watch() -> None:
    cluster = Api(resource())
    runtime = Watching(cluster)
    runtime.resource_changed(cluster.objects[KIND, "pair"], deleted=False)
    await asyncio.sleep(SECONDS)
    cluster.put(resource(spec={}))  # the outage loses its event
    await asyncio.sleep(SECONDS)
    cluster.broken = True
    for _ in range(60):
        await asyncio.sleep(SECONDS)
        assert runtime.healthy()
    cluster.broken = False
    await asyncio.sleep(SECONDS)
    assert runtime.healthy()
    runtime.resource_changed(cluster.objects[KIND, "pair"], deleted=False)
    await asyncio.sleep(10 * SECONDS)
    assert runtime.healthy()
    await runtime.stop()


@simulated_clock
async def test_ended_task_fails_the_probe() -> None:
    runtime = Watching(Api())
    await asyncio.sleep(1)
    assert runtime.healthy()
    runtime._tasks[1].cancel()
    await asyncio.sleep(1)
    with pytest.raises(probe.UnhealthyError, match="watch check"):
        runtime.check_health()
    await runtime.stop()
