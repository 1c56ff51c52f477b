"""Everything that lives as long as the operator process: queue, reconciler, resync, watch check.

The process starts and stops the `Runtime`, and `handlers` passes watch events to it. The `Runtime`
turns events into queued keys. The periodic resync and the watch check detect changes whose events
were lost.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

from prometheus_client import start_http_server

from specdec.api.kinds import WATCHED
from specdec.api.model import API_VERSION, KIND
from specdec.backends.facts import Images
from specdec.cluster import Cluster, ClusterError, Transient, metrics
from specdec.cluster.login import connect
from specdec.controller import probe, standby
from specdec.controller.children import owner_keys
from specdec.controller.dependents import Dependents
from specdec.controller.leader_election import Lease
from specdec.controller.own_image import with_own_image
from specdec.controller.queue import Key, WorkQueue
from specdec.controller.reconcile import PROGRESS_SECONDS, Reconciler
from specdec.controller.settings import Settings
from specdec.controller.view import Change, name_of
from specdec.controller.views import Views
from specdec.controller.watch_monitor import WatchMonitor
from specdec.pipeline.observed import POD_JOB, job_state

logger = logging.getLogger(__name__)

# Children change in bursts, such as a Deployment and the EndpointSlices of its Service. One
# reconcile handles a burst.
CHILD_DELAY = 0.1
# Seconds between two reconciles because of a child, so that one handles all changes of a stage.
CHILD_INTERVAL = 1.0
# The same because of a pod. Pods only show progress: their Job or Deployment changes too.
POD_INTERVAL = PROGRESS_SECONDS
RESYNC_RETRY_SECONDS = 15.0
DEFINITION_ATTEMPTS = 60
STOP_GRACE = 15.0


class Runtime:
    """The running operator, with everything that outlives a restart of the watches."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._exits = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._queue: WorkQueue | None = None
        self._reconciler: Reconciler | None = None
        self._views: Views | None = None
        self._dependents = Dependents()
        self._watch_monitor = WatchMonitor()
        self._last_resync: float | None = None
        self._started = 0.0
        self._stands_by = False

    async def start(self) -> None:
        """Log in, serve metrics, wait for the Lease if configured, and start the tasks.

        Raises:
            ClusterError: the login failed, or the resource definition is not installed.
            OSError: a port is in use.
        """
        try:
            await self._start()
        except BaseException:
            # Also on cancellation, which ends the wait of a standby.
            await self._exits.aclose()
            raise

    async def _start(self) -> None:
        cluster = await self._exits.enter_async_context(connect())
        await wait_for_definition(cluster)
        if self.settings.metrics_port:
            self._exits.enter_context(_metrics_server(self.settings.metrics_port))
        cluster = await self._become_active(cluster)
        settings = await with_own_image(self.settings, cluster)
        queue = self.attach(cluster, settings.images)
        self._start_task(self._resync(cluster, queue), "resync")
        self._start_task(self._check_watches(cluster, queue), "watch check")

    def attach(self, cluster: Cluster, images: Images) -> WorkQueue:
        """Follow the children of all resources, and start the queue; returns it."""
        views = Views(cluster)
        views.changed = self.changed
        reconciler = Reconciler(views, images, doubt=views.doubt)
        queue = WorkQueue(reconciler.reconcile, workers=self.settings.workers)
        self._queue, self._reconciler, self._views = queue, reconciler, views
        self._started = _now()
        metrics.QUEUE_DEPTH.set_function(lambda: queue.depth)
        self._start_task(queue.run(), "queue")
        for api_version, kind in WATCHED:
            for view in views.add(api_version, kind, self._namespaces):
                self._start_task(views.follow(view), f"watch of {kind}")
        return queue

    def _start_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_log_exception)
        self._tasks.append(task)

    async def _become_active(self, cluster: Cluster) -> Cluster:
        """Wait for the Lease if configured; the returned cluster then requires it for writes."""
        settings = self.settings
        if not settings.lease:
            await self._exits.enter_async_context(standby.single_replica())
            return cluster
        namespace, _, name = settings.lease.partition("/")
        identity = standby.unique_identity()
        lease = Lease(cluster, namespace, name, identity, settings.lease_seconds)
        self._stands_by = True
        await self._exits.enter_async_context(standby.hold_lease(lease))
        self._stands_by = False
        return cluster.fenced(standby.write_fence(lease))

    async def stop(self) -> None:
        """Let running reconciles finish, then close every connection."""
        if self._queue is not None:
            await self._queue.stop(STOP_GRACE)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._exits.aclose()

    def resource_changed(self, body: dict[str, Any], deleted: bool = False) -> None:
        """Handle an event of a resource; `changed` queues it, unless it is our own write."""
        meta = body["metadata"]
        key = (meta["namespace"], meta["name"])
        self._watch_monitor.record(meta, _now(), deleted=deleted)
        if self._queue is None or self._reconciler is None or self._views is None:
            return
        if deleted:
            self._reconciler.forget(key)
            self._queue.forget(key)
        else:
            self._reconciler.note(key, meta["uid"], meta["generation"])
        self._views.resource_event(body, deleted=deleted)
        self._dependents.update(key, body, deleted=deleted)
        for dependent in self._dependents.of(key):
            # Dependents read the status of this resource, so our own status write concerns them
            # too.
            self._queue.add_after(dependent, CHILD_DELAY)

    def changed(self, change: Change) -> None:
        """Queue the resources that an object belongs to which another client has changed."""
        if self._queue is None or self._views is None:
            return
        deleted = change[1] is None
        for item in filter(None, change):
            if item["kind"] == KIND:
                if not deleted:
                    self._queue.add(name_of(item))
                continue
            keys, apart = self._owners(item)
            for key in keys:
                if deleted:
                    self._views.doubt(key)  # the child may be deleted with its resource
                self._queue.add_after(key, CHILD_DELAY, apart)

    def _owners(self, item: Mapping[str, Any]) -> tuple[list[Key], float]:
        """The resources that a child belongs to, and the least seconds between reconciles."""
        meta = item["metadata"]
        keys = owner_keys(meta)
        if item["kind"] != "Pod" or self._views is None:
            return keys, CHILD_INTERVAL
        name = meta.get("labels", {}).get(POD_JOB)
        job = self._views.stored("batch/v1", "Job", (meta["namespace"], name)) if name else None
        if job is None:
            return keys, POD_INTERVAL
        # The pods of a shared Job belong to all resources that share it.
        ended = job_state(job) != "Running"
        return keys or owner_keys(job["metadata"]), CHILD_INTERVAL if ended else POD_INTERVAL

    def check_health(self) -> dict[str, float]:
        """The figures for the probe; raises `probe.UnhealthyError` with one sentence."""
        if self._stands_by:
            return {"standby": True}  # healthy as long as its event loop runs
        if self._queue is None:
            raise probe.UnhealthyError("the operator has not started its queue")
        for task in self._tasks:
            if task.done():
                raise probe.UnhealthyError(f"the operator's {task.get_name()} task has ended")
        since = _now() - (self._started if self._last_resync is None else self._last_resync)
        interval = self.settings.resync_seconds
        stale_object = self._watch_monitor.stale_object
        return probe.check(self._queue.health(), since, interval, stale_object)

    async def _resync(self, cluster: Cluster, queue: WorkQueue) -> None:
        """Periodically queue every resource, in case an event was lost."""
        while True:
            try:
                keys = await self._list_keys(cluster)
            except ClusterError as error:
                logger.warning("resync: %s; retrying in %g s", error, RESYNC_RETRY_SECONDS)
                await asyncio.sleep(RESYNC_RETRY_SECONDS)
                continue
            first = self._last_resync is None
            self._last_resync = _now()
            metrics.RESOURCES.set(len(keys))
            metrics.MODELS.retain(keys)
            spread = 0.0 if first else min(60.0, self.settings.resync_seconds / 2)
            for key in keys:
                queue.add_after(key, random.uniform(0, spread))  # noqa: S311 - not a secret
            jitter = random.uniform(0.9, 1.1)  # noqa: S311 - not a secret
            await asyncio.sleep(self.settings.resync_seconds * jitter)

    async def _check_watches(self, cluster: Cluster, queue: WorkQueue) -> None:
        """Periodically compare live objects with the events that have arrived."""
        while True:
            started = _now()
            try:
                await self._compare_with_events(cluster, queue, started)
            except Exception:
                # A defect of the check must not make the probe restart a working operator.
                logger.exception("the watch check raised an exception")
            duration = _now() - started
            relative = self.settings.watch_check_pause_factor * duration
            await asyncio.sleep(max(self.settings.watch_check_seconds, relative))

    async def _compare_with_events(
        self, cluster: Cluster, queue: WorkQueue, started: float
    ) -> None:
        """Queue resources with missed events, and repair the copies of their children."""
        listed = await self._list_resources(cluster)
        if listed is not None:
            overdue = set(self._watch_monitor.compare(KIND, listed, started))
            self._watch_monitor.retain([meta["uid"] for meta in listed], started)
            for key in [(m["namespace"], m["name"]) for m in listed if m["uid"] in overdue]:
                self._doubt(key)
                queue.add(key)
        if self._views is not None:
            await self._views.compare()

    def _doubt(self, key: Key) -> None:
        if self._views is not None:
            self._views.doubt(key)

    async def _list_resources(self, cluster: Cluster) -> list[dict[str, Any]] | None:
        """The metadata of all resources; None if a request fails."""
        objects: list[dict[str, Any]] = []
        for namespace in self._namespaces:
            try:
                objects += await cluster.list_metadata(API_VERSION, KIND, namespace)
            except ClusterError as error:
                logger.debug("watch check of %s: %s", KIND, error)
                return None
        return objects

    async def _list_keys(self, cluster: Cluster) -> list[Key]:
        lists = [await cluster.list(API_VERSION, KIND, n) for n in self._namespaces]
        return [
            (item["metadata"]["namespace"], item["metadata"]["name"])
            for items in lists
            for item in items
        ]

    @property
    def _namespaces(self) -> tuple[str | None, ...]:
        """The watched namespaces; None stands for all."""
        return self.settings.namespaces or (None,)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def wait_for_definition(cluster: Cluster) -> None:
    """Wait until the API server serves the resource definition.

    An installation applies definition and operator together, and kopf checks only once.

    Raises:
        ClusterError: it is still missing after about a minute.
    """
    for _ in range(DEFINITION_ATTEMPTS):
        try:
            if await cluster.serves(API_VERSION, KIND):
                return
        except Transient as error:
            logger.warning("%s; retrying", error)
        await asyncio.sleep(1)
    raise ClusterError(
        f"the API server serves no {KIND} ({API_VERSION}): apply crds/speculativemodels.yaml"
    )


@contextlib.contextmanager
def _metrics_server(port: int) -> Iterator[None]:
    """Serve metrics from a thread of the Prometheus library."""
    server, thread = start_http_server(port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _log_exception(task: asyncio.Task[None]) -> None:
    """Log why a task ended; the probe then turns unhealthy."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("the operator's %s task failed", task.get_name(), exc_info=error)
