"""The operator between kopf and reconcile: queue, resync and what they need while it lives."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import start_http_server

from specdec import metrics
from specdec.api import names
from specdec.api.kinds import WATCHED
from specdec.api.model import API_VERSION, KIND
from specdec.cluster import Cluster, ClusterError, Missing, Transient
from specdec.cluster.login import connect
from specdec.controller import probe, standby
from specdec.controller.dependents import Followers
from specdec.controller.leader_election import Lease
from specdec.controller.queue import Key, WorkQueue
from specdec.controller.reconcile import Reconciler
from specdec.controller.settings import Settings
from specdec.controller.watches import Watches

logger = logging.getLogger(__name__)

# Children change in bursts: a Job, its pod and its status within a moment make one reconcile.
SETTLE = 0.1
RESYNC_RETRY = 15.0
DEFINED_TRIES = 60
GRACE = 15.0
WATCH_CHECK_SHARE = 20.0


class Runtime:
    """Everything that lives as long as the operator; made in on.startup, ended in on.cleanup."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._exits = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._queue: WorkQueue | None = None
        self._reconciler: Reconciler | None = None
        self._followers = Followers()
        self._watches = Watches()
        self._resynced: float | None = None
        self._started = 0.0

    async def start(self) -> None:
        """Log in, serve metrics, wait for the Lease if there is one, start queue and resync.

        Raises:
            ClusterError: no login, or the definition of the resource is not installed.
            OSError: a port is taken.
        """
        try:
            await self._start()
        except BaseException:
            # A standby that is told to stop is cancelled here.
            await self._exits.aclose()
            raise

    async def _start(self) -> None:
        cluster = await self._exits.enter_async_context(connect())
        await defined(cluster)
        if self.settings.metrics_port:
            self._exits.enter_context(_served(self.settings.metrics_port))
        cluster = await self._lead(cluster)
        reconciler = Reconciler(cluster, self.settings.images)
        queue = WorkQueue(reconciler.reconcile, workers=self.settings.workers)
        self._queue, self._reconciler = queue, reconciler
        self._started = asyncio.get_running_loop().time()
        metrics.QUEUE_DEPTH.set_function(lambda: queue.depth)
        self._tasks = [
            asyncio.create_task(queue.run(), name="queue"),
            asyncio.create_task(self._resync(cluster, queue), name="resync"),
            asyncio.create_task(self._watch_check(cluster, queue), name="watch check"),
        ]
        for task in self._tasks:
            task.add_done_callback(_tell_end)

    async def _lead(self, cluster: Cluster) -> Cluster:
        """Wait for the Lease if there is one; returns the cluster to write to while it is held."""
        own = self.settings
        if not own.lease:
            await self._exits.enter_async_context(standby.alone())
            return cluster
        namespace, _, name = own.lease.partition("/")
        lease = Lease(cluster, namespace, name, standby.identity(), own.lease_seconds)
        await self._exits.enter_async_context(standby.leading(lease, own.health_port))
        return cluster.fenced(standby.fence(lease))

    async def stop(self) -> None:
        """Let running reconciles end, then close every connection."""
        if self._queue is not None:
            await self._queue.stop(GRACE)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._exits.aclose()

    def resource_changed(self, body: Mapping[str, Any], *, deleted: bool) -> None:
        """An event of a resource: ask for a reconcile, unless it shows our own status write."""
        meta = body["metadata"]
        key = (meta["namespace"], meta["name"])
        self._watches.see(meta, _now(), deleted=deleted)
        if self._queue is None or self._reconciler is None:
            return
        if deleted:
            self._reconciler.forget(key)
        elif not self._reconciler.is_echo(key, (meta["resourceVersion"], meta["generation"])):
            self._queue.add(key)
        self._followers.see(key, body, deleted=deleted)
        for follower in self._followers.of(key):
            # Our own status write of the one is news for the other.
            self._queue.add_after(follower, SETTLE)

    def child_changed(self, body: Mapping[str, Any], *, deleted: bool = False) -> None:
        """An event of a child: ask for a reconcile of whom it belongs to."""
        self._watches.see(body["metadata"], _now(), deleted=deleted)
        if self._queue is not None:
            for key in owners(body["metadata"]):
                self._queue.add_after(key, SETTLE)

    def check(self) -> dict[str, float]:
        """Figures for the probe; raises `probe.UnhealthyError` with one sentence."""
        if self._queue is None:
            raise probe.UnhealthyError("the operator has not started its queue")
        for task in self._tasks:
            if task.done():
                raise probe.UnhealthyError(f"the operator's {task.get_name()} has ended")
        since = _now() - (self._started if self._resynced is None else self._resynced)
        interval = self.settings.resync_seconds
        return probe.check(self._queue.health(), since, interval, self._watches.deaf)

    async def _resync(self, cluster: Cluster, queue: WorkQueue) -> None:
        """Add every resource now and then: what a broken watch missed is found here."""
        while True:
            try:
                keys = await self._keys(cluster)
            except ClusterError as error:
                logger.warning("resync: %s; trying again in %g s", error, RESYNC_RETRY)
                await asyncio.sleep(RESYNC_RETRY)
                continue
            first = self._resynced is None
            self._resynced = asyncio.get_running_loop().time()
            metrics.RESOURCES.set(len(keys))
            metrics.MODELS.keep(keys)
            spread = 0.0 if first else min(60.0, self.settings.resync_seconds / 2)
            for key in keys:
                queue.add_after(key, random.uniform(0, spread))  # noqa: S311 - no secret
            jitter = random.uniform(0.9, 1.1)  # noqa: S311 - no secret
            await asyncio.sleep(self.settings.resync_seconds * jitter)

    async def _watch_check(self, cluster: Cluster, queue: WorkQueue) -> None:
        """Hold the objects against their events, now and then."""
        while True:
            began = _now()
            try:
                await self._compare(cluster, queue, began)
            except Exception:
                # A defect of the check must not make the probe restart what works.
                logger.exception("the watch check broke")
            # Of a large cluster it takes its time: never more than a part of it.
            pause = max(self.settings.watch_check_seconds, WATCH_CHECK_SHARE * (_now() - began))
            await asyncio.sleep(pause)

    async def _compare(self, cluster: Cluster, queue: WorkQueue, began: float) -> None:
        """Reconcile what events have missed; forget what is gone if every kind could be listed."""
        uids: list[str] = []
        whole = True
        for kind in ((API_VERSION, KIND), *WATCHED):
            found = await self._heads(cluster, *kind)
            whole = whole and found is not None
            late = set(self._watches.compare(kind[1], found or (), began))
            uids += [meta["uid"] for meta in found or ()]
            for meta in (one for one in found or () if one["uid"] in late):
                own = [(meta["namespace"], meta["name"])]
                for key in own if kind[1] == KIND else owners(meta):
                    queue.add(key)
        if whole:
            self._watches.keep(uids, began)

    async def _heads(
        self, cluster: Cluster, api_version: str, kind: str
    ) -> list[dict[str, Any]] | None:
        """The metadata of all objects of a kind that events should show; None where not known."""
        selector = "" if kind == KIND else f"{names.MANAGED_BY}={names.MANAGER}"
        places: tuple[str | None, ...] = self.settings.namespaces or (None,)
        found: list[dict[str, Any]] = []
        for place in places:
            try:
                found += await cluster.heads(api_version, kind, place, selector)
            except Missing:
                continue  # the cluster does not have the kind
            except ClusterError as error:
                logger.debug("watch check of %s: %s", kind, error)
                return None
        return found

    async def _keys(self, cluster: Cluster) -> list[Key]:
        places: tuple[str | None, ...] = self.settings.namespaces or (None,)
        found = [await cluster.list(API_VERSION, KIND, place) for place in places]
        return [
            (item["metadata"]["namespace"], item["metadata"]["name"])
            for items in found
            for item in items
        ]


def _now() -> float:
    return asyncio.get_running_loop().time()


def owners(meta: Mapping[str, Any]) -> list[Key]:
    """The keys of the resources that a child (its metadata) belongs to: several for a shared Job.

    By owner and by label, since somebody may have taken either away: the event that shows it is
    the one that has to bring it back.
    """
    owning = [
        owner["name"]
        for owner in meta.get("ownerReferences", [])
        if owner.get("kind") == KIND and owner.get("apiVersion") == API_VERSION
    ]
    labelled = names.models(meta.get("labels", {}))
    return [(meta["namespace"], name) for name in dict.fromkeys([*owning, *labelled])]


async def defined(cluster: Cluster) -> None:
    """Wait until the definition is served: kopf looks once, and an install applies all at once.

    Raises:
        ClusterError: it did not come within about a minute.
    """
    for _ in range(DEFINED_TRIES):
        try:
            if await cluster.serves(API_VERSION, KIND):
                return
        except Transient as error:
            logger.warning("%s; trying again", error)
        await asyncio.sleep(1)
    raise ClusterError(
        f"the API server serves no {KIND} ({API_VERSION}): apply crds/speculativemodels.yaml"
    )


@contextlib.contextmanager
def _served(port: int) -> Iterator[None]:
    """The metrics endpoint in a thread of its own, as the library offers it."""
    server, thread = start_http_server(port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _tell_end(task: asyncio.Task[None]) -> None:
    """A part that ends before its time is told; the probe then turns unhealthy."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("the operator's %s broke", task.get_name(), exc_info=error)
