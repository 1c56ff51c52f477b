"""The start waits for the resource definition, for a limited time; events reach the reconciler."""

import copy

import pytest
from typing_extensions import override

from specdec.cluster import ClusterError, Transient
from specdec.controller.queue import Result, WorkQueue
from specdec.controller.reconcile import Reconciler
from specdec.controller.runtime import DEFINITION_ATTEMPTS, Runtime, wait_for_definition
from specdec.controller.settings import Settings
from specdec.controller.views import Views
from support.fake_cluster import FakeCluster
from support.simulated_clock import run
from unit.controller.decisions import IMAGES, KEY, Decided, resource


class Discovery(FakeCluster):
    """Serves the kind after `after` requests; every second request fails."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after
        self.requests = 0

    @override
    async def serves(self, api_version: str, kind: str) -> bool:
        self.requests += 1
        if self.requests % 2:
            raise Transient("no answer")
        return self.requests >= self.after


def test_start_waits_until_the_definition_is_served() -> None:
    discovery = Discovery(after=6)
    run(wait_for_definition(discovery))
    assert discovery.requests == 6


def test_start_fails_with_a_fix_if_the_definition_is_missing() -> None:
    discovery = Discovery(after=10_000)
    with pytest.raises(ClusterError, match=r"apply crds/speculativemodels\.yaml"):
        run(wait_for_definition(discovery))
    assert discovery.requests == DEFINITION_ATTEMPTS


async def test_read_older_than_an_event_is_not_reconciled() -> None:
    cluster = FakeCluster(resource())
    reconciler = Reconciler(cluster, IMAGES, Decided())
    runtime = Runtime(Settings())
    runtime._queue, runtime._reconciler = WorkQueue(reconciler.reconcile), reconciler
    runtime._views = Views(cluster)
    newer = copy.deepcopy(cluster.objects["SpeculativeModel", "pair"])
    newer["metadata"]["generation"] += 1
    runtime.resource_changed(newer)
    assert await reconciler.reconcile(KEY) == Result(failed=True)
    assert cluster.writes() == []
