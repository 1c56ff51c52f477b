"""An API server in memory that stores applied objects and records every request."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

from specdec.api import names
from specdec.api.conditions import Transition
from specdec.cluster import Cluster, Conflict, Missing

Json = dict[str, Any]


class FakeCluster(Cluster):
    """Holds objects by kind and name.

    `fail` has errors to raise by verb and kind; `fail_once` has those of the next calls only.
    """

    def __init__(self, *objects: Json) -> None:  # has no client, because it sends no requests
        self.objects: dict[tuple[str, str], Json] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.managers: list[str] = []
        self.events: list[Transition] = []
        self.fail: dict[tuple[str, str], Exception] = {}
        self.fail_once: dict[tuple[str, str], Iterator[Exception]] = {}
        self.logs: dict[str, str] = {}
        self.pages: dict[str, str] = {}
        self.events_of: dict[str, tuple[str, ...]] = {}
        self._version = itertools.count(1)
        for item in objects:
            self.put(item)

    def put(self, item: Mapping[str, Any]) -> Json:
        meta = {"uid": f"uid-{item['metadata']['name']}", **item["metadata"]}
        meta["resourceVersion"] = str(next(self._version))
        stored = {**item, "metadata": meta}
        self.objects[item["kind"], meta["name"]] = stored
        return stored

    def writes(self) -> list[tuple[str, str, str]]:
        return [call for call in self.calls if call[0] not in ("get", "list", "log")]

    def _record(self, verb: str, kind: str, name: str) -> None:
        self.calls.append((verb, kind, name))
        error = next(self.fail_once.get((verb, kind), iter(())), self.fail.get((verb, kind)))
        if error is not None:
            raise error

    @override
    async def get(
        self, api_version: str, kind: str, namespace: str | None, name: str
    ) -> Json | None:
        self._record("get", kind, name)
        return self.objects.get((kind, name))

    @override
    async def find(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None:
        self._record("list", kind, name)
        return self.objects.get((kind, name))

    @override
    async def list(
        self, api_version: str, kind: str, namespace: str | None, selector: str = ""
    ) -> list[Json]:
        self._record("list", kind, selector)
        key, _, value = selector.partition(" in " if " in " in selector else "=")
        values = value.strip("()").split(",")
        items = [item for (k, _), item in self.objects.items() if k == kind]
        return [
            item
            for item in items
            if key in (labels := item["metadata"].get("labels", {}))
            and (not value or labels[key] in values)
        ]

    @override
    async def notes(
        self, namespace: str, uid: str, reason: str, since: str = ""
    ) -> tuple[str, ...]:
        self._record("list", "Event", f"{uid} {reason} {since}".rstrip())
        return tuple(self.events_of.get(uid, ()))

    @override
    async def log(
        self, namespace: str, pod: str, lines: int, container: str = "", *, previous: bool = False
    ) -> str:
        target = f"{pod}/{container}" if container else pod
        self._record("log", "Pod", f"{target} before its restart" if previous else target)
        return self.logs[pod]

    @override
    async def pod_metrics(self, namespace: str, pod: str, port: int) -> str:
        self._record("proxy", "Pod", pod)
        return self.pages[pod]

    @override
    async def apply(self, body: Mapping[str, Any], manager: str = names.MANAGER) -> Json:
        self._record("apply", body["kind"], body["metadata"]["name"])
        self.managers.append(manager)
        old = self.objects.get((body["kind"], body["metadata"]["name"]), {})
        require_version(body, old)
        merged = {**old, **body, "metadata": {**old.get("metadata", {}), **body["metadata"]}}
        return self.put(merged)

    @override
    async def patch(
        self, target: Mapping[str, Any], operations: Sequence[Mapping[str, Any]], manager: str
    ) -> Json:
        """Records the call only; tests with a real API server cover the effect of a patch."""
        self._record("patch", target["kind"], target["metadata"]["name"])
        return self.put(self.objects[target["kind"], target["metadata"]["name"]])

    @override
    async def create(self, body: Mapping[str, Any], manager: str = names.MANAGER) -> Json | None:
        kind, name = body["kind"], body["metadata"]["name"]
        self._record("create", kind, name)
        if (kind, name) in self.objects:
            return None
        self.managers.append(manager)
        return self.put(body)

    @override
    async def update(self, body: Mapping[str, Any]) -> Json:
        kind, meta = body["kind"], body["metadata"]
        self._record("update", kind, meta["name"])
        old = self.objects.get((kind, meta["name"]))
        if old is None:
            raise Missing(404, f"{kind} {meta['name']}", "not found")
        if old["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict(f"{kind} {meta['name']} has changed since it was read")
        return self.put(body)

    @override
    async def serves(self, api_version: str, kind: str) -> bool:
        self._record("discover", kind, api_version)
        return False

    @override
    async def delete(self, target: Mapping[str, Any]) -> bool:
        name = target["metadata"]["name"]
        self._record("delete", target["kind"], name)
        return self.objects.pop((target["kind"], name), None) is not None

    @override
    async def apply_status(
        self, body: Mapping[str, Any], manager: str = names.MANAGER
    ) -> Json | None:
        name = body["metadata"]["name"]
        self._record("apply_status", body["kind"], name)
        old = self.objects.get((body["kind"], name))
        return None if old is None else self.put({**old, "status": body["status"]})

    @override
    async def record_event(self, regarding: Mapping[str, Any], transition: Transition) -> None:
        self._record("create", "Event", regarding["metadata"]["name"])
        self.events.append(transition)


def require_version(body: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    """Raise Conflict if an applied object has another version than the stored one."""
    for key in ("uid", "resourceVersion"):
        if key in body["metadata"] and body["metadata"][key] != old.get("metadata", {}).get(key):
            raise Conflict(f"{body['kind']} {body['metadata']['name']} has changed")
