"""A watch that lives is never called deaf, and one that is deaf always."""

import asyncio
from typing import Any

import pytest
from typing_extensions import override

from specdec.api.model import KIND
from specdec.cluster import Missing, Transient
from specdec.controller import probe
from specdec.controller.queue import ReconcileResult, WorkQueue
from specdec.controller.runtime import Runtime
from specdec.controller.settings import Settings
from specdec.controller.watches import LATE, MISSED, Watches
from unit.controller.clock import run
from unit.controller.fakes import FakeCluster
from unit.controller.test_reconcile import child, resource

Json = dict[str, Any]
SECONDS = 60.0


def meta(uid: str = "one", version: str = "1") -> Json:
    return {"uid": uid, "resourceVersion": version, "namespace": "ns", "name": uid}


def test_an_idle_cluster_is_not_deaf() -> None:
    watches = Watches()
    watches.see(meta(), 0)
    for round_ in range(1, 50):
        assert watches.compare("Job", [meta()], round_) == []
        watches.keep(["one"], round_)
    assert watches.deaf is None


def test_an_object_that_changes_all_the_time_is_not_deaf() -> None:
    watches = Watches()
    for round_ in range(50):
        # The list is newer than the last event, whose successor is under way.
        watches.see(meta(version=f"{2 * round_}"), round_)
        watches.compare("Job", [meta(version=f"{2 * round_ + 1}")], round_ + 0.5)
        watches.see(meta(version=f"{2 * round_ + 1}"), round_ + 0.6)
    assert watches.deaf is None


@pytest.mark.parametrize("known", [True, False], ids=["changed", "new"])
def test_a_change_that_no_event_shows_is_late_and_then_deaf(known: bool) -> None:
    watches = Watches()
    if known:
        watches.see(meta(), 0)
    for count in range(1, MISSED + 1):
        assert watches.deaf is None
        late = watches.compare("Job", [meta(version="2")], count)
        assert late == (["one"] if count >= LATE else [])
        watches.keep(["one"], count)
    assert watches.deaf == "Job ns/one"
    watches.see(meta(version="2"), MISSED + 1)
    assert watches.deaf is None


def test_an_event_that_comes_while_the_list_is_made_counts() -> None:
    watches = Watches()
    for count in range(2 * MISSED):
        watches.see(meta(version=f"{count + 1}"), count + 0.5)
        assert watches.compare("Job", [meta(version=f"{count}")], count) == []
    assert watches.deaf is None


def test_what_is_gone_is_forgotten_and_what_is_new_is_not() -> None:
    watches = Watches()
    watches.see(meta("gone"), 0)
    for count in range(1, MISSED):
        watches.compare("Job", [meta("gone", "2")], count)
    watches.see(meta("new"), MISSED + 0.5)  # made after the list was asked for
    watches.keep([], MISSED)
    assert watches.compare("Job", [meta("new")], MISSED + 1) == []
    assert watches.deaf is None
    watches.see(meta("new"), MISSED + 2, deleted=True)
    assert not watches._seen


class Api(FakeCluster):
    """Serves what it holds, unless it is out of order."""

    broken = False

    @override
    async def heads(
        self, api_version: str, kind: str, namespace: str | None, selector: str = ""
    ) -> list[Json]:
        if self.broken:
            raise Transient("no answer")
        if kind == "ScaledObject":
            raise Missing(404, kind, "not found")
        return [item["metadata"] for (k, _), item in self.objects.items() if k == kind]


class Watching(Runtime):
    """A runtime with a queue that a test reads, and no login."""

    def __init__(self, cluster: Api) -> None:
        super().__init__(Settings())
        self.reconciled: list[tuple[str, str]] = []

        async def reconcile(key: tuple[str, str]) -> ReconcileResult:
            self.reconciled.append(key)
            return ReconcileResult()

        self._queue = queue = WorkQueue(reconcile)
        self._resynced = asyncio.get_running_loop().time()
        self._tasks = [
            asyncio.create_task(queue.run(), name="queue"),
            asyncio.create_task(self._watch_check(cluster, queue), name="watch check"),
        ]

    def healthy(self) -> bool:
        self._resynced = asyncio.get_running_loop().time()
        try:
            self.check()
        except probe.UnhealthyError:
            return False
        return True


def owned(**members: Any) -> Json:
    job = {**child("Job", "build", "engine"), **members}
    owner = {"apiVersion": "specdec.dev/v1alpha1", "kind": KIND, "name": "pair", "uid": "uid-pair"}
    job["metadata"]["ownerReferences"] = [owner]
    return job


def test_what_a_deaf_watch_misses_is_reconciled_and_makes_the_probe_fail() -> None:
    async def scenario() -> None:
        cluster = Api(resource())
        runtime = Watching(cluster)
        runtime.resource_changed(cluster.objects[KIND, "pair"], deleted=False)
        await asyncio.sleep(10 * SECONDS)
        assert (runtime.reconciled, runtime.healthy()) == ([], True)
        cluster.put(owned())  # and no event
        await asyncio.sleep(2.5 * SECONDS)
        assert (set(runtime.reconciled), runtime.healthy()) == ({("ns", "pair")}, True)
        await asyncio.sleep(MISSED * SECONDS)
        with pytest.raises(probe.UnhealthyError, match="Job ns/build"):
            runtime.check()
        runtime.child_changed(cluster.objects["Job", "build"])
        assert runtime.healthy()
        await runtime.stop()

    run(scenario())


def test_an_outage_of_the_api_server_is_no_deaf_watch() -> None:
    async def scenario() -> None:
        cluster = Api(resource())
        runtime = Watching(cluster)
        runtime.resource_changed(cluster.objects[KIND, "pair"], deleted=False)
        await asyncio.sleep(SECONDS)
        cluster.put(resource(spec={}))  # its event is cut off with everything else
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

    run(scenario())


def test_a_part_that_has_ended_makes_the_probe_fail() -> None:
    async def scenario() -> None:
        runtime = Watching(Api())
        await asyncio.sleep(1)
        assert runtime.healthy()
        runtime._tasks[1].cancel()
        await asyncio.sleep(1)
        with pytest.raises(probe.UnhealthyError, match="watch check"):
            runtime.check()
        await runtime.stop()

    run(scenario())
