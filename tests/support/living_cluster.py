"""A cluster in memory whose controllers bind claims, run Jobs and start servers.

Times are those of a quiet cluster. With `clock.simulated_clock`, waiting takes no time.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from typing_extensions import override

from specdec.api import names
from specdec.pipeline.observed import POD_JOB
from specdec.tools.dry_run.simulated_cluster import (
    copied,
    ended_pod_status,
    measurement_result,
    merge_metadata,
)
from support.fake_cluster import FakeCluster, Json, require_version
from support.simulated_cluster import fetched

STAMP = "2026-01-02T03:04:05Z"
JOB_SECONDS = 12.0
Jsons = list[Json]
Changed = Callable[[Json, bool], None]


class LivingCluster(FakeCluster):
    """Stores objects as `FakeCluster` does, and lets every Job and pod succeed."""

    def __init__(self, *objects: Json) -> None:
        self.listeners: list[Changed] = []
        self.lose_events = False
        self._watches: list[tuple[str, str, asyncio.Queue[Json]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        super().__init__(*objects)

    def requests(self) -> Counter[tuple[str, str]]:
        """Return the number of requests by verb and kind."""
        return Counter((verb, kind) for verb, kind, _ in self.calls)

    @override
    def put(self, item: Mapping[str, Any]) -> Json:
        item = dict(copied(dict(item)))
        old = self.objects.get((item["kind"], item["metadata"]["name"]))
        if old is not None and _without_version(old) == _without_version(item):
            return old
        created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        item["metadata"] = {"creationTimestamp": created, "generation": 1, **item["metadata"]}
        if old is not None and old.get("spec") != item.get("spec"):
            item["metadata"]["generation"] = old["metadata"]["generation"] + 1
        stored = super().put(item)
        self._notify(stored, deleted=False, old=old)
        if old is None or old["metadata"]["generation"] != stored["metadata"]["generation"]:
            self._control(stored)
        return stored

    @override
    async def log(
        self, namespace: str, pod: str, lines: int, container: str = "", *, previous: bool = False
    ) -> str:
        self._record("log", "Pod", pod)
        return ""

    def remove(self, kind: str, name: str) -> None:
        """Delete an object as its owner or the garbage collector does."""
        self._notify(self.objects.pop((kind, name)), deleted=True)

    @override
    async def list(
        self, api_version: str, kind: str, namespace: str | None, selector: str = ""
    ) -> list[Json]:
        self._record("list", kind, selector)
        return [
            item
            for (k, _), item in self.objects.items()
            if k == kind and selected(item["metadata"].get("labels", {}), selector)
        ]

    @override
    async def apply(self, body: Mapping[str, Any], manager: str = names.MANAGER) -> Json:
        live = self.objects.get((body["kind"], body["metadata"]["name"]))
        if live is None or body["kind"] != "Job":
            return await super().apply(body, manager)
        self._record("apply", "Job", body["metadata"]["name"])
        require_version(body, live)
        merged = copied(live)
        merge_metadata(merged["metadata"], copied(body["metadata"]))
        return self.put(merged)

    @override
    async def delete(self, target: Mapping[str, Any]) -> bool:
        name = target["metadata"]["name"]
        self._record("delete", target["kind"], name)
        if (target["kind"], name) not in self.objects:
            return False
        self.remove(target["kind"], name)
        return True

    @override
    async def list_metadata(
        self, api_version: str, kind: str, namespace: str | None, selector: str = ""
    ) -> Jsons:
        return [i["metadata"] for i in await self.list(api_version, kind, namespace, selector)]

    @override
    async def list_at(
        self, api_version: str, kind: str, namespace: str | None, selector: str
    ) -> tuple[Jsons, str]:
        items = await self.list(api_version, kind, namespace, selector)
        return items, str(next(self._version))

    @override
    async def stream(
        self, api_version: str, kind: str, namespace: str | None, selector: str, version: str
    ) -> AsyncGenerator[Json]:
        """Yield the changes of a kind from now on; events arrive a moment later."""
        self._record("watch", kind, selector)
        events: asyncio.Queue[Json] = asyncio.Queue()
        self._watches.append((kind, selector, events))
        while True:
            event = await events.get()
            await asyncio.sleep(0.01)
            yield event

    def end_watches(self, code: int) -> None:
        """Send an ERROR event to every watch."""
        for _, _, events in self._watches:
            events.put_nowait({"type": "ERROR", "object": {"code": code, "message": "a fault"}})
        self._watches.clear()

    def _notify(self, item: Json, *, deleted: bool, old: Json | None = None) -> None:
        """Send an event; for a watch that no longer selects an object, the object is deleted."""
        if self.lose_events:
            return
        if item["kind"] == "SpeculativeModel":
            for listener in self.listeners:
                listener(item, deleted)
        before = (old or item)["metadata"].get("labels", {})
        for kind, selector, events in self._watches:
            shown = selected(item["metadata"].get("labels", {}), selector)
            if kind == item["kind"] and (shown or selected(before, selector)):
                kind_of = "MODIFIED" if shown and not deleted else "DELETED"
                events.put_nowait({"type": kind_of, "object": item})

    def _control(self, item: Json) -> None:
        run = _CONTROLLERS.get(item["kind"])
        if run is not None:
            task = asyncio.get_running_loop().create_task(run(self, item["metadata"]["name"]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def change(self, kind: str, name: str, **members: Any) -> Json:
        """Replace members of an object, such as its status."""
        return self.put({**self.objects[kind, name], **members})

    async def _bind(self, name: str) -> None:
        await asyncio.sleep(0.3)
        self.change("PersistentVolumeClaim", name, status={"phase": "Bound"})

    async def _run_job(self, name: str) -> None:
        job = self.objects["Job", name]
        template = job["spec"]["template"]
        labels = {**template["metadata"]["labels"], POD_JOB: name}
        pod = f"{name}-x"
        await asyncio.sleep(0.1)
        self.change("Job", name, status={"active": 1})
        await self._start_pod(pod, labels, template["spec"])
        self.change("Job", name, status={"active": 1, "ready": 1})
        await asyncio.sleep(JOB_SECONDS)
        component = labels[names.COMPONENT]
        result = fetched() if component == "fetch" else {}
        text = json.dumps(measurement_result(job) or result)
        self.change("Pod", pod, status=ended_pod_status(text))
        await asyncio.sleep(0.1)
        self.change("Job", name, status={"ready": 0, "terminating": 0})
        await asyncio.sleep(0.9)
        done = {"type": "Complete", "status": "True", "reason": "CompletionsReached"}
        self.change("Job", name, status={"succeeded": 1, "conditions": [done]})

    async def _run_deployment(self, name: str) -> None:
        deployment = self.objects["Deployment", name]
        template = deployment["spec"]["template"]
        generation = deployment["metadata"]["generation"]
        await asyncio.sleep(0.05)
        counts: Json = {"observedGeneration": generation, "replicas": 0}
        self.change("Deployment", name, status=dict(counts))
        counts |= {"replicas": 1, "updatedReplicas": 1}
        self.change("Deployment", name, status=dict(counts))
        await self._start_pod(f"{name}-pod", template["metadata"]["labels"], template["spec"])
        await asyncio.sleep(3.0)
        container = {"name": "server", "ready": True, "started": True, "state": {"running": {}}}
        ready = {"type": "Ready", "status": "True"}
        status = {"phase": "Running", "conditions": [ready], "containerStatuses": [container]}
        self.change("Pod", f"{name}-pod", status=status)
        counts |= {"readyReplicas": 1, "availableReplicas": 1}
        self.change("Deployment", name, status=dict(counts))
        self._endpoints(name)

    async def _start_pod(self, name: str, labels: Json, spec: Json) -> None:
        """Create a pod that gets a node, pulls its image and runs, and is not ready."""
        meta = {"name": name, "namespace": "demo", "labels": labels}
        pending: Json = {"phase": "Pending"}
        self.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        self.change("Pod", name, status=pending)
        await asyncio.sleep(0.05)
        scheduled = {"type": "PodScheduled", "status": "True"}
        self.change("Pod", name, status={**pending, "conditions": [scheduled]})
        await asyncio.sleep(0.05)
        main = spec["containers"][0]["name"]
        creating = {"waiting": {"reason": "ContainerCreating"}}
        waiting = {"name": main, "ready": False, "started": False, "state": creating}
        self.change("Pod", name, status={**pending, "containerStatuses": [waiting]})
        await asyncio.sleep(1.0)
        running = {**waiting, "state": {"running": {"startedAt": STAMP}}}
        self.change("Pod", name, status={"phase": "Running", "containerStatuses": [running]})

    async def _make_slice(self, name: str) -> None:
        await asyncio.sleep(0.1)
        labels = self.objects["Service", name]["metadata"]["labels"]
        meta = {"name": f"{name}-s", "namespace": "demo"}
        meta["labels"] = {**labels, "kubernetes.io/service-name": name}  # type: ignore[assignment]
        version = "discovery.k8s.io/v1"
        body = {"apiVersion": version, "kind": "EndpointSlice", "metadata": meta}
        self.put({**body, "endpoints": []})
        self._endpoints(name)

    def _endpoints(self, name: str) -> None:
        live = self.objects.get(("Deployment", name), {}).get("status", {})
        if ("EndpointSlice", f"{name}-s") in self.objects:
            endpoints = [{"conditions": {"ready": bool(live.get("readyReplicas"))}}]
            self.change("EndpointSlice", f"{name}-s", endpoints=endpoints)


_CONTROLLERS = {
    "PersistentVolumeClaim": LivingCluster._bind,
    "Job": LivingCluster._run_job,
    "Deployment": LivingCluster._run_deployment,
    "Service": LivingCluster._make_slice,
}


def _without_version(item: Mapping[str, Any]) -> Json:
    kept = ("labels", "annotations", "ownerReferences", "deletionTimestamp")
    meta = {key: item["metadata"].get(key) for key in kept}
    return {**item, "metadata": meta}


def selected(labels: Mapping[str, str], selector: str) -> bool:
    """Return whether labels match a selector such as `a=b,c in (d,e),f`."""
    terms = selector.replace(" in (", "=(").split(")")
    flat = [t for part in terms for t in _terms(part)]
    return all(key in labels and (not values or labels[key] in values) for key, values in flat)


def _terms(part: str) -> list[tuple[str, list[str]]]:
    """Split `a=b,c=(d,e` into keys and their values; a key without values has an empty list."""
    plain, opened, rest = part.partition("=(")
    terms = [term for term in plain.split(",") if term]
    last = [(terms.pop(), rest.split(","))] if opened else []
    pairs = [term.partition("=") for term in terms]
    return [(key, [value] if sep else []) for key, sep, value in pairs] + last
