"""The API server behind a few verbs; with `login` the only package that knows its client.

Objects are plain dictionaries in both directions. Reads are live, there is no cache: a decision
is never taken on what was true a while ago.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.dynamic import DynamicClient

from specdec import metrics
from specdec.api import names
from specdec.api.conditions import Transition
from specdec.api.kinds import PLURALS
from specdec.cluster.errors import (
    ClusterError,
    Conflict,
    Missing,
    Rejected,
    Transient,
    convert,
)
from specdec.cluster.events import event_of

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
HEADS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
JSON_PATCH = "application/json-patch+json"
# Creation of Services reaches seconds on a busy server, so a client must be patient.
TIMEOUT = 60.0
# A log comes from a pod's node, which may be the thing that is broken: no decision waits for it.
LOG_TIMEOUT = 5.0
LOG_BYTES = 256 * 1024
PAGE = 500


def path(api_version: str, kind: str, namespace: str | None, name: str | None = None) -> str:
    """The URL path of a collection or of one object; raises KeyError for a kind not in use."""
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    place = f"/namespaces/{namespace}" if namespace else ""
    leaf = f"/{name}" if name else ""
    return f"{root}{place}/{PLURALS[api_version, kind]}{leaf}"


class Cluster:
    """One API server by its verbs: get, list, log, apply, patch, create, update, delete, ..."""

    def __init__(self, client: ApiClient, fence: Callable[[], None] = lambda: None) -> None:
        self._client, self._fence = client, fence
        self._dynamic = DynamicClient(client)  # type: ignore[no-untyped-call]

    def fenced(self, fence: Callable[[], None]) -> "Cluster":
        """The same API server; `fence` is called before each write, and raises to prevent it."""
        return Cluster(self._client, fence)

    async def serves(self, api_version: str, kind: str) -> bool:
        """Whether discovery lists a kind of a group: some moments after the CRD was taken."""
        group = api_version.partition("/")[0]
        groups = await self._request("discover", "/apis", kind)
        if group not in {item["name"] for item in groups["groups"]}:
            return False
        try:
            found = await self._request("discover", f"/apis/{api_version}", kind)
        except Missing:
            return False
        return kind in {item["kind"] for item in found["resources"]}

    async def get(
        self, api_version: str, kind: str, namespace: str | None, name: str
    ) -> Json | None:
        """The object, or None when it does not exist."""
        try:
            return await self._send("get", api_version, kind, namespace, name)
        except Missing:
            return None

    async def list(
        self, api_version: str, kind: str, namespace: str | None, selector: str = ""
    ) -> list[Json]:
        """Every object that a label selector takes; of all namespaces when none is given.

        Items carry apiVersion and kind, which the server leaves out of lists.
        """
        found = await self._pages("application/json", api_version, kind, namespace, selector)
        return [{"apiVersion": api_version, "kind": kind, **item} for item in found]

    async def heads(
        self, api_version: str, kind: str, namespace: str | None, selector: str = ""
    ) -> Jsons:
        """The metadata of what `list` finds; an API server sends nothing else."""
        found = await self._pages(HEADS, api_version, kind, namespace, selector)
        return [item["metadata"] for item in found]

    async def _pages(
        self, accept: str, api_version: str, kind: str, namespace: str | None, selector: str
    ) -> Jsons:
        found: Jsons = []
        token: str | None = None
        options: Json = {"label_selector": selector or None, "limit": PAGE}
        while True:
            # The client adds its own headers to the dictionary.
            more = {**options, "_continue": token, "header_params": {"Accept": accept}}
            page = await self._send("list", api_version, kind, namespace, **more)
            found += page["items"] or ()  # of an empty list of metadata it is null
            token = page["metadata"].get("continue")
            if not token:
                return found

    async def log(
        self, namespace: str, pod: str, lines: int, container: str = "", *, previous: bool = False
    ) -> str:
        """The last lines of a pod's container; its name may be empty where it is the only one.

        `previous` asks for the run before its last restart.
        """
        options = {"container": container, "previous": "true" if previous else ""}
        query = [("tailLines", str(lines)), ("limitBytes", str(LOG_BYTES))]
        query += [(key, value) for key, value in options.items() if value]
        url = f"{path('v1', 'Pod', namespace, pod)}/log"
        async with self._asked("log", url, f"Pod {pod}", LOG_TIMEOUT, query_params=query) as found:
            return str(await found.text(errors="replace"))

    async def metrics_of(self, namespace: str, pod: str, port: int) -> str:
        """What a pod answers at /metrics, by way of the API server: needs `get pods/proxy`.

        For a person's tools; the operator has no such right.
        """
        url = f"{path('v1', 'Pod', namespace, f'{pod}:{port}')}/proxy/metrics"
        async with self._asked("proxy", url, f"Pod {pod}", LOG_TIMEOUT) as found:
            return str(await found.text(errors="replace"))

    async def apply(self, body: Mapping[str, Any], manager: str = names.MANAGER) -> Json:
        """Server-side apply of a complete intent; returns the object as it is now."""
        return await self._send("apply", **_intent(body, manager))

    async def patch(
        self, target: Mapping[str, Any], operations: Sequence[Mapping[str, Any]], manager: str
    ) -> Json:
        """JSON-patch an object as it was read; raises Conflict when somebody changed it since."""
        version = target["metadata"]["resourceVersion"]
        guard = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
        how = {"content_type": JSON_PATCH, "field_manager": manager}
        return await self._send("patch", **identity(target), body=[guard, *operations], **how)

    async def create(self, body: Mapping[str, Any]) -> bool:
        """Make an object that is never read nor changed again; False when there is one."""
        place = (body["apiVersion"], body["kind"], body["metadata"]["namespace"])
        try:
            await self._send("create", *place, body=body)
        except Conflict:
            return False
        return True

    async def update(self, body: Mapping[str, Any]) -> Json:
        """Replace an object as it was read; raises Conflict when somebody changed it since."""
        return await self._send("update", **identity(body), body=body)

    async def delete(self, target: Mapping[str, Any]) -> bool:
        """Delete an object as it was read, and in the background what it owns; False when gone.

        The uid and the resource version of `target` are preconditions: what somebody changed or
        made anew since then is not deleted but raises Conflict.
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
        """Server-side apply of a status; the resource as it is now, None when it is gone."""
        try:
            options = _intent(body, manager)
            return await self._send("apply_status", subresource="status", **options)
        except Missing:
            return None

    async def record_event(self, regarding: Mapping[str, Any], transition: Transition) -> None:
        """One event about a changed condition of a resource."""
        event = event_of(regarding, transition, datetime.now(UTC))
        place = ("events.k8s.io/v1", "Event", event["metadata"]["namespace"])
        await self._send("create", *place, body=event)

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
        async with self._asked(verb, url, target, TIMEOUT, **options) as answer:
            value: Json = await answer.json()
            return value

    @asynccontextmanager
    async def _asked(
        self, verb: str, url: str, target: str, patience: float, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request, counted; the answer is read inside, so that its errors are ours too."""
        code = 0
        if METHODS[verb] != "get":
            self._fence()
        try:
            async with asyncio.timeout(patience):
                answer = await self._dynamic.request(
                    METHODS[verb], url, serialize=False, **options
                )
                code = answer.status
                yield answer
        except ApiException as error:
            code = error.status or 0
            raise convert(error, target) from error
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise convert(error, target) from error
        finally:
            metrics.API_REQUESTS.labels(verb, target.partition(" ")[0], code).inc()


METHODS = {
    "discover": "get",
    "get": "get",
    "list": "get",
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
    how = {"content_type": APPLY, "field_manager": manager, "force_conflicts": True}
    return {**identity(body), "body": body, **how}


def identity(body: Mapping[str, Any]) -> Json:
    """The keyword arguments that name the object of a manifest."""
    return {
        "api_version": body["apiVersion"],
        "kind": body["kind"],
        "namespace": body["metadata"]["namespace"],
        "name": body["metadata"]["name"],
    }
