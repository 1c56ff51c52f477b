"""The API server with copies of the children: one view for each kind, by a list and a watch.

The `Reconciler` reads from `Views`. A view answers only while its watch is connected, so a fault
of the API server turns reads into live requests. What the view may have wrong is read live, too.
The result of every write goes into its view, so the next decision sees it, and its own event
causes no reconcile.
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

from typing_extensions import override

from specdec.api import names
from specdec.api.conditions import Transition
from specdec.api.model import API_VERSION, KIND
from specdec.cluster import Cluster, ClusterError, Conflict, Missing, Rejected, metrics
from specdec.controller.queue import Backoff
from specdec.controller.view import Change, Json, Name, View, matches, name_of

logger = logging.getLogger(__name__)
T = TypeVar("T")

SELECTOR = f"{names.MANAGED_BY}={names.MANAGER}"
# A cluster may lack a kind. Its objects are read live until somebody installs the definition.
MISSING_SECONDS = 30.0
BACKOFF = Backoff(first=1.0, ceiling=30.0)
# Seconds. The end of a watch that ran for longer counts as the first one again.
STEADY = 60.0
# Seconds. A watch that ends sooner does not go on at once.
SHORTEST = 5.0
# What a resource may have that is read by its name, and so even without labels: kind, and the end
# of the name.
_NAMED = (
    ("v1", "PersistentVolumeClaim", "-models"),
    ("apps/v1", "Deployment", ""),
    ("apps/v1", "Deployment", "-draft"),
    (names.GROUP_API, names.GROUP_KIND, "-group"),
)
# Metadata that changes with every version.
_BOOKKEEPING = frozenset({"resourceVersion", "managedFields"})


class Views(Cluster):
    """The API server, with reads of the added kinds from copies; `live` reads nothing from them.

    SpeculativeModels have a view too, which the events of kopf fill. As kopf may lose the event of
    a deletion, only their presence counts: a missing one is read live.

    Attributes:
        changed: called with an object before and after a change by another client.
    """

    def __init__(self, live: Cluster) -> None:  # sends no requests of its own
        self._live = live
        self.changed: Callable[[Change], None] = lambda _: None
        self._resources = View(API_VERSION, KIND)
        self._known: set[Name] = set()
        self._views: dict[tuple[str, str], list[View]] = {}
        self._writing: dict[tuple[str, Name], list[tuple[View, Json, bool]]] = {}

    @property
    @override
    def live(self) -> Cluster:
        return self._live

    def add(self, api_version: str, kind: str, namespaces: Iterable[str | None]) -> list[View]:
        """Add the views of a kind, one for each namespace; None stands for all."""
        views = [View(api_version, kind, namespace) for namespace in namespaces]
        self._views[api_version, kind] = views
        return views

    def doubt(self, key: Name) -> None:
        """Read a resource live the next time: it may be deleted."""
        self._resources.forget(key)

    def stored(self, api_version: str, kind: str, name: Name) -> Json | None:
        """An object as its view has it, connected or not."""
        views = self._views.get((api_version, kind), ())
        return next((item for view in views if (item := view.get(name))), None)

    def resource_event(self, body: Json, *, deleted: bool) -> None:
        """Take in an event of a resource."""
        if deleted:
            self._forget(name_of(body))
        else:
            self._meet(body)
        self._event(self._resources, body, deleted=deleted)

    def _meet(self, body: Json) -> None:
        """Doubt that children of an older resource are missing: their labels may be."""
        key = name_of(body)
        if key in self._known:
            return
        self._known.add(key)
        if not body.get("status"):
            return
        meta = {"namespace": key[0], "labels": {names.MODEL: key[1]}}
        for api_version, kind, suffix in _NAMED:
            child = (key[0], f"{key[1]}{suffix}")
            view = self._holder({"apiVersion": api_version, "kind": kind, "metadata": meta})
            if view is not None and view.get(child) is None:
                view.doubt(child, meta)

    def _forget(self, key: Name) -> None:
        self._known.discard(key)
        for view in itertools.chain(*self._views.values()):
            view.forget_doubts(key)

    async def follow(self, view: View) -> None:
        """Keep a view up to date until this task is cancelled."""
        failures, loop = 0, asyncio.get_running_loop()
        rng = random.Random()  # noqa: S311 - jitter is not a secret
        while True:
            started, cause = loop.time(), "the server no longer has its version"
            try:
                await self._list_and_watch(view)
            except Missing:
                view.connected = False
                await asyncio.sleep(MISSING_SECONDS)
                continue
            except ClusterError as error:
                cause = str(error)
            except Exception as error:
                logger.exception("the watch of %s raised an exception", view.kind)
                cause = type(error).__name__
            finally:
                view.connected = False
            failures = 1 if loop.time() - started > STEADY else failures + 1
            pause = BACKOFF.delay(failures, rng)
            metrics.WATCH_RESTARTS.inc()
            logger.warning("the watch of %s starts again in %.1f s: %s", view.kind, pause, cause)
            await asyncio.sleep(pause)

    async def _list_and_watch(self, view: View) -> None:
        """List, then follow the changes; returns once the server no longer has the version."""
        place = (view.api_version, view.kind, view.namespace, SELECTOR)
        items, version = await self._judged(view, self._live.list_at)
        for change in view.replace(items, version):
            self._report(view.kind, change)
        view.connected = True
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            async with aclosing(self._live.stream(*place, version)) as events:
                async for event in events:
                    item = event["object"]
                    if event["type"] == "ERROR":
                        if item.get("code") == 410:
                            return
                        raise ClusterError(f"the server ends it: {item.get('message')}")
                    version = item["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._event(view, item, deleted=event["type"] == "DELETED")
            if loop.time() - started < SHORTEST:
                raise ClusterError("the server ends it early")

    async def compare(self) -> None:
        """Compare all views with the API server, and repair those whose watch loses events."""
        for view in [view for views in self._views.values() for view in views if view.connected]:
            try:
                late = view.compare(await self._judged(view, self._live.list_metadata))
                if late:
                    logger.warning("the watch of %s lost events of %s", view.kind, ", ".join(late))
                    metrics.WATCH_RESTARTS.inc()
                    items, version = await self._judged(view, self._live.list_at)
                    for change in view.replace(items, version):
                        self._report(view.kind, change)
            except ClusterError as error:
                logger.debug("watch check of %s: %s", view.kind, error)

    async def _judged(self, view: View, read: Callable[..., Awaitable[T]]) -> T:
        """List the objects of a view; note whether the API server allows it.

        A watch goes on after the right to it was removed. Reads are live then, so that every
        resource reports the missing right.
        """
        try:
            listed = await read(view.api_version, view.kind, view.namespace, SELECTOR)
        except Missing:
            raise
        except Rejected:
            self._deny(view, denied=True)
            raise
        self._deny(view, denied=False)
        return listed

    def _deny(self, view: View, *, denied: bool) -> None:
        if denied != view.denied:
            view.denied = denied
            for body in filter(None, map(self._resources.get, self._known)):
                self.changed((body, body))

    def _event(self, view: View, item: Json, *, deleted: bool) -> None:
        """Take in an event; that of an object that is being written waits for the response."""
        waiting = self._writing.get((view.kind, name_of(item)))
        if waiting is not None:
            waiting.append((view, item, deleted))
            return
        change = view.remove(item) if deleted else view.put(item)
        if change is not None:
            self._report(view.kind, change)

    def _report(self, kind: str, change: Change) -> None:
        old, new = change
        if old is None or new is None or _essence(kind, old) != _essence(kind, new):
            self.changed(change)

    @override
    async def get(
        self, api_version: str, kind: str, namespace: str | None, name: str
    ) -> Json | None:
        key = (namespace or "", name)
        if kind != KIND:
            return await self._live.get(api_version, kind, namespace, name)
        if (body := self._resources.get(key)) is not None:
            return body
        live = await self._live.get(api_version, kind, namespace, name)
        if live is None:
            self._forget(key)
        else:
            self._meet(live)
            self._resources.put(live)
        return live

    @override
    async def find(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None:
        view = self._view(api_version, kind, namespace)
        if view is None:
            return await self._live.find(api_version, kind, namespace, name)
        if view.in_doubt((namespace, name)):
            return await self._settle(view, (namespace, name))
        return view.get((namespace, name))

    @override
    async def list(
        self, api_version: str, kind: str, namespace: str | None, selector: str = ""
    ) -> list[Json]:
        view = self._view(api_version, kind, namespace)
        if view is None or namespace is None:
            return await self._live.list(api_version, kind, namespace, selector)
        unlabelled: list[Json] = []
        for name in view.select_doubts(namespace, selector):
            live = await self._settle(view, name)
            if live is not None and view.in_doubt(name) and matches(live, selector):
                unlabelled.append(live)
        return view.select(namespace, selector) + unlabelled

    async def _settle(self, view: View, name: Name) -> Json | None:
        """Read an object in doubt; the view then has it, unless it lacks the operator's label."""
        live = await self._live.find(view.api_version, view.kind, *name)
        change = view.settle(name, live)
        if change is not None:
            self._report(view.kind, change)  # its event will not: the view has its version
        return view.get(name) or live

    def _view(self, api_version: str, kind: str, namespace: str | None) -> View | None:
        """The connected view with the objects of a namespace."""
        for view in self._views.get((api_version, kind), ()):
            following = view.connected and not view.denied
            if following and view.namespace in (None, namespace):
                return view
        return None

    @override
    async def create(self, body: Mapping[str, Any], manager: str = names.MANAGER) -> Json | None:
        with self._write(body):
            stored = await self._live.create(body, manager)
            if stored is not None:
                self._store(stored)
            elif (view := self._holder(body)) is not None:
                view.doubt(name_of(body), body["metadata"])
        return stored

    @override
    async def apply(self, body: Mapping[str, Any], manager: str = names.MANAGER) -> Json:
        with self._write(body):
            return self._written(await self._live.apply(body, manager))

    @override
    async def patch(
        self, target: Mapping[str, Any], operations: Sequence[Mapping[str, Any]], manager: str
    ) -> Json:
        with self._write(target):
            return self._written(await self._live.patch(target, operations, manager))

    @override
    async def apply_status(
        self, body: Mapping[str, Any], manager: str = names.MANAGER
    ) -> Json | None:
        with self._write(body):
            stored = await self._live.apply_status(body, manager)
            if stored is None:
                self._resources.forget(name_of(body))
            else:
                self._written(stored)
        return stored

    @override
    async def delete(self, target: Mapping[str, Any]) -> bool:
        with self._write(target):
            deleted = await self._live.delete(target)
            view = self._holder(target)
            if view is not None:
                view.mark_deleted(target, exists=deleted)
        return deleted

    @contextmanager
    def _write(self, target: Mapping[str, Any]) -> Iterator[None]:
        """Let events of an object wait until the response of a write has its version.

        After a conflict, the next read of the object is live.
        """
        key = (target["kind"], name_of(target))
        first = self._writing.setdefault(key, []) == []
        try:
            yield
        except Conflict:
            if target["kind"] == KIND:
                self.doubt(name_of(target))
            elif (view := self._holder(target)) is not None:
                view.doubt(name_of(target), target["metadata"])
            raise
        finally:
            if first:
                for event in self._writing.pop(key, ()):
                    self._event(event[0], event[1], deleted=event[2])

    def _written(self, stored: Json) -> Json:
        """Store the response of a change; report what other clients have changed since."""
        change = self._store(stored)
        if change is not None and (old := change[0]) is not None:
            own = "spec" if stored["kind"] != KIND else "status"
            if _by_others(own, old) != _by_others(own, stored):
                self.changed(change)
        return stored

    def _store(self, stored: Json) -> Change | None:
        view = self._holder(stored)
        return view.put(stored) if view is not None else None

    def _holder(self, item: Mapping[str, Any]) -> View | None:
        """The view that holds an object, connected or not."""
        if item["kind"] == KIND:
            return self._resources
        views = self._views.get((item["apiVersion"], item["kind"]), ())
        namespace = item["metadata"]["namespace"]
        return next((v for v in views if v.namespace in (None, namespace)), None)

    @override
    async def log(
        self, namespace: str, pod: str, lines: int, container: str = "", *, previous: bool = False
    ) -> str:
        return await self._live.log(namespace, pod, lines, container, previous=previous)

    @override
    async def notes(
        self, namespace: str, uid: str, reason: str, since: str = ""
    ) -> tuple[str, ...]:
        return await self._live.notes(namespace, uid, reason, since)

    @override
    async def record_event(self, regarding: Mapping[str, Any], transition: Transition) -> None:
        await self._live.record_event(regarding, transition)

    @override
    async def serves(self, api_version: str, kind: str) -> bool:
        return await self._live.serves(api_version, kind)


def _essence(kind: str, item: Json) -> Json:
    """What a decision may depend on: without versions, and without the counters of Jobs."""
    meta = {k: v for k, v in item["metadata"].items() if k not in _BOOKKEEPING}
    rest = {key: value for key, value in item.items() if key not in ("metadata", "status")}
    status = item.get("status") or {}
    if kind == "Job":
        status = {"conditions": status.get("conditions")}
    return {**rest, "metadata": meta, "status": status}


def _by_others(own: str, item: Json) -> Json:
    """What a write of ours does not set: `own` is the part that it writes."""
    meta = item["metadata"]
    other = "status" if own == "spec" else "spec"
    return {other: item.get(other), "deleted": meta.get("deletionTimestamp")} | (
        {"meta": {k: meta.get(k) for k in ("generation", "labels", "annotations")}}
        if own == "status"
        else {}
    )
