"""Access to the Kubernetes API server through a few verbs: get, list, apply, delete and others.

The controller and the commands about a running cluster call it; no other package uses the
Kubernetes client. Objects are plain dictionaries in both directions. Every read is a live request;
the controller's `Views` read from copies that watches keep up to date.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.dynamic import DynamicClient

from specdec.api import names
from specdec.api.conditions import Transition
from specdec.api.kinds import PLURALS
from specdec.cluster import metrics
from specdec.cluster.errors import (
    ClusterError,
    Conflict,
    Missing,
    Rejected,
    Transient,
    convert,
)
from specdec.cluster.events import event_of, time_of

__all__ = [
    "Cluster",
    "ClusterError",
    "Conflict",
    "Missing",
    "Rejected",
    "Transient",
    "convert",
    "identity",
    "path",
]

Json = dict[str, Any]
Jsons = list[Json]

APPLY = "application/apply-patch+yaml"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
JSON_PATCH = "application/json-patch+json"
# A busy API server takes seconds to create a Service.
TIMEOUT = 60.0
# The API server fetches logs from the pod's node. A broken node must not delay a reconcile.
LOG_TIMEOUT = 5.0
LOG_BYTES = 256 * 1024
PAGE = 500
# Seconds: how long a watch lasts, and after how long without a byte it counts as lost.
WATCH_SECONDS = 300
WATCH_SILENCE = 75.0


def path(api_version: str, kind: str, namespace: str | None, name: str | None = None) -> str:
    """The URL path of a collection or of one object; raises KeyError for a kind not in PLURALS."""
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    scope = f"/namespaces/{namespace}" if namespace else ""
    suffix = f"/{name}" if name else ""
    return f"{root}{scope}/{PLURALS[api_version, kind]}{suffix}"


class Cluster:
    """One API server.

    Every method raises a `ClusterError` when its request fails. `fence` is called before each
    write and raises to prevent it.
    """

    def __init__(self, client: ApiClient, fence: Callable[[], None] = lambda: None) -> None:
        self._client, self._fence = client, fence
        self._dynamic = DynamicClient(client)  # type: ignore[no-untyped-call]

    @property
    def live(self) -> "Cluster":
        """The same API server, where every read is a request."""
        return self

    def fenced(self, fence: Callable[[], None]) -> "Cluster":
        """The same API server with another fence."""
        return Cluster(self._client, fence)

    async def serves(self, api_version: str, kind: str) -> bool:
        """Whether discovery lists a kind; it does so some moments after its CRD is created."""
        group = api_version.partition("/")[0]
        groups = await self._request("discover", "/apis", kind)
        if group not in {item["name"] for item in groups["groups"]}:
            return False
        try:
            resources = await self._request("discover", f"/apis/{api_version}", kind)
        except Missing:
            return False
        return kind in {item["kind"] for item in resources["resources"]}

    async def get(
        self, api_version: str, kind: str, namespace: str | None, name: str
    ) -> Json | None:
        """The object, or None when it does not exist."""
        try:
            return await self._send("get", api_version, kind, namespace, name)
        except Missing:
            return None

    async def find(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None:
        """The object, or None when it does not exist, read with the right to list its kind."""
        options = {"field_selector": f"metadata.name={name}"}
        try:
            page = await self._send("list", api_version, kind, namespace, **options)
        except Missing:
            return None
        items = ({"apiVersion": api_version, "kind": kind, **item} for item in page["items"])
        return next(items, None)

    async def list(
        self, api_version: str, kind: str, namespace: str | None, selector: str = ""
    ) -> list[Json]:
        """Every object that matches a label selector; without a namespace, in all namespaces.

        Items carry apiVersion and kind, which the server leaves out of lists.
        """
        items, _ = await self.list_at(api_version, kind, namespace, selector)
        return [{"apiVersion": api_version, "kind": kind, **item} for item in items]

    async def list_at(
        self, api_version: str, kind: str, namespace: str | None, selector: str
    ) -> tuple[Jsons, str]:
        """The objects that `list` returns, and the version from which `stream` goes on."""
        accept = "application/json"
        return await self._pages(accept, api_version, kind, namespace, selector)

    async def stream(
        self, api_version: str, kind: str, namespace: str | None, selector: str, version: str
    ) -> AsyncGenerator[Json]:
        """The events after a version, until the API server ends the watch.

        An event has `type` (ADDED, MODIFIED, DELETED, BOOKMARK, ERROR) and `object`. The API
        server sends a bookmark a minute, so a silent connection counts as lost.
        """
        query = [("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", version)]
        query += [("timeoutSeconds", str(WATCH_SECONDS)), ("labelSelector", selector)]
        limits = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=WATCH_SILENCE)
        options = {"query_params": query, "_request_timeout": limits}
        url = path(api_version, kind, namespace)
        async with self._open("watch", url, kind, None, **options) as response:
            async for line in _lines(response.content):
                yield json.loads(line)

    async def list_metadata(
        self, api_version: str, kind: str, namespace: str | None, selector: str = ""
    ) -> Jsons:
        """The metadata of the objects that `list` returns; the API server sends nothing else."""
        items, _ = await self._pages(METADATA_LIST, api_version, kind, namespace, selector)
        return [item["metadata"] for item in items]

    async def _pages(
        self, accept: str, api_version: str, kind: str, namespace: str | None, selector: str
    ) -> tuple[Jsons, str]:
        items: Jsons = []
        token: str | None = None
        options: Json = {"label_selector": selector or None, "limit": PAGE}
        while True:
            # The client adds its own headers to the dictionary.
            request = {**options, "_continue": token, "header_params": {"Accept": accept}}
            page = await self._send("list", api_version, kind, namespace, **request)
            items += page["items"] or ()  # null for an empty list of metadata
            token = page["metadata"].get("continue")
            if not token:
                return items, page["metadata"].get("resourceVersion", "")

    async def notes(
        self, namespace: str, uid: str, reason: str, since: str = ""
    ) -> tuple[str, ...]:
        """The messages of the events about an object that have a reason, oldest first.

        `since` (RFC 3339) selects those that happened again after it.
        """
        options: Json = {"field_selector": f"regarding.uid={uid},reason={reason}"}
        page = await self._send("list", "events.k8s.io/v1", "Event", namespace, **options)
        events = sorted(page["items"], key=time_of)
        return tuple(event.get("note", "") for event in events if time_of(event) >= since)

    async def log(
        self, namespace: str, pod: str, lines: int, container: str = "", *, previous: bool = False
    ) -> str:
        """The last lines of a container's log; `container` may be empty if the pod has only one.

        `previous` selects the run before the last restart.
        """
        options = {"container": container, "previous": "true" if previous else ""}
        query = [("tailLines", str(lines)), ("limitBytes", str(LOG_BYTES))]
        query += [(key, value) for key, value in options.items() if value]
        url = f"{path('v1', 'Pod', namespace, pod)}/log"
        target = f"Pod {pod}"
        async with self._open("log", url, target, LOG_TIMEOUT, query_params=query) as response:
            return str(await response.text(errors="replace"))

    async def pod_metrics(self, namespace: str, pod: str, port: int) -> str:
        """The page that a pod serves at /metrics, fetched through the API server's proxy.

        Only the command line uses it, with its user's right to `get pods/proxy`. The operator
        has no such right.
        """
        url = f"{path('v1', 'Pod', namespace, f'{pod}:{port}')}/proxy/metrics"
        async with self._open("proxy", url, f"Pod {pod}", LOG_TIMEOUT) as response:
            return str(await response.text(errors="replace"))

    async def apply(self, body: Mapping[str, Any], manager: str = names.MANAGER) -> Json:
        """Server-side apply of a complete intent; returns the object as stored."""
        return await self._send("apply", **_intent(body, manager))

    async def patch(
        self, target: Mapping[str, Any], operations: Sequence[Mapping[str, Any]], manager: str
    ) -> Json:
        """JSON-patch an object as it was read; raises Conflict if it has changed since."""
        version = target["metadata"]["resourceVersion"]
        guard = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
        options = {"content_type": JSON_PATCH, "field_manager": manager}
        return await self._send("patch", **identity(target), body=[guard, *operations], **options)

    async def create(self, body: Mapping[str, Any], manager: str = names.MANAGER) -> Json | None:
        """Create an object; returns it as stored, or None if one of its name exists."""
        collection = (body["apiVersion"], body["kind"], body["metadata"]["namespace"])
        try:
            return await self._send("create", *collection, body=body, field_manager=manager)
        except Conflict:
            return None

    async def update(self, body: Mapping[str, Any]) -> Json:
        """Replace an object as it was read; raises Conflict if it has changed since."""
        return await self._send("update", **identity(body), body=body)

    async def delete(self, target: Mapping[str, Any]) -> bool:
        """Delete an object as it was read; False if it does not exist any more.

        The API server then deletes the dependents of `target` in the background. The uid and the
        resource version of `target` are preconditions: an object that was changed or created again
        since is not deleted, and the request raises Conflict.
        """
        meta = target["metadata"]
        versions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        options = {"propagationPolicy": "Background", "preconditions": versions}
        try:
            await self._send("delete", **identity(target), body=options)
        except Missing:
            return False
        return True

    async def apply_status(
        self, body: Mapping[str, Any], manager: str = names.MANAGER
    ) -> Json | None:
        """Server-side apply of a status; the resource as stored, None if it was deleted."""
        try:
            options = _intent(body, manager)
            return await self._send("apply_status", subresource="status", **options)
        except Missing:
            return None

    async def record_event(self, regarding: Mapping[str, Any], transition: Transition) -> None:
        """Record one event about a changed condition of a resource."""
        event = event_of(regarding, transition, datetime.now(UTC))
        collection = ("events.k8s.io/v1", "Event", event["metadata"]["namespace"])
        await self._send("create", *collection, body=event)

    async def _send(
        self,
        verb: str,
        api_version: str,
        kind: str,
        namespace: str | None,
        name: str | None = None,
        subresource: str = "",
        **options: Any,
    ) -> Json:
        url = path(api_version, kind, namespace, name) + (subresource and f"/{subresource}")
        return await self._request(verb, url, " ".join(filter(None, (kind, name))), **options)

    async def _request(self, verb: str, url: str, target: str, **options: Any) -> Json:
        async with self._open(verb, url, target, TIMEOUT, **options) as response:
            value: Json = await response.json()
            return value

    @asynccontextmanager
    async def _open(
        self, verb: str, url: str, target: str, seconds: float | None, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request with a timeout, count it, and convert the client's errors.

        Callers read the response inside the `with` block, so that errors of reading are
        converted as well.
        """
        code = 0
        if METHODS[verb] != "get":
            self._fence()
        try:
            async with asyncio.timeout(seconds):
                response = await self._dynamic.request(
                    METHODS[verb], url, serialize=False, **options
                )
                code = response.status
                try:
                    yield response
                finally:
                    response.close()  # its connection, unless the whole response was read
        except ApiException as error:
            code = error.status or 0
            raise convert(error, target) from error
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise convert(error, target) from error
        finally:
            metrics.API_REQUESTS.labels(verb, target.partition(" ")[0], code).inc()


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a response, of any length: aiohttp's own iterator refuses those of 128 KiB."""
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        first, *rest = chunk.split(b"\n")
        parts.append(first)
        for part in rest:
            yield b"".join(parts)
            parts = [part]


METHODS = {
    "discover": "get",
    "get": "get",
    "list": "get",
    "watch": "get",
    "log": "get",
    "proxy": "get",
    "apply": "patch",
    "apply_status": "patch",
    "delete": "delete",
    "create": "post",
    "patch": "patch",
    "update": "put",
}


def _intent(body: Mapping[str, Any], manager: str) -> Json:
    """The keyword arguments of a server-side apply."""
    options = {"content_type": APPLY, "field_manager": manager, "force_conflicts": True}
    return {**identity(body), "body": body, **options}


def identity(body: Mapping[str, Any]) -> Json:
    """The keyword arguments that identify the object of a manifest."""
    return {
        "api_version": body["apiVersion"],
        "kind": body["kind"],
        "namespace": body["metadata"]["namespace"],
        "name": body["metadata"]["name"],
    }
