"""Read status, logs, metrics and events of a resource, to keep them in files.

`specdec certify` calls `read` before it deletes a resource, and `specdec report` when a person
asks. What cannot be read becomes a note. Pods are kept in the short form of `specdec status`,
without their environment.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.api import names
from specdec.client.errors import BadRequestError
from specdec.cluster import LOG_BYTES, Cluster, ClusterError, Missing
from specdec.tools.inspect import status
from specdec.tools.inspect.containers import ContainerRun, started
from specdec.tools.inspect.top import metrics_port

Json = dict[str, Any]
LOG_LINES = 400
_OPERATOR_METRICS = 9090
_SERVERS = tuple(names.SERVERS.values())


@dataclass
class Snapshot:
    """What is kept of a resource.

    Attributes:
        status: as `specdec status --json` prints it; empty if it cannot be read.
        logs, metrics: texts by the name of the pod.
        events: of the resource and its children, oldest first.
        notes: one sentence for each part that could not be read.
    """

    status: Json = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    events: list[Json] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SnapshotSource:
    """Where a snapshot is read from.

    Attributes:
        cluster: logged in as the caller.
        namespace: of the resource.
        operator_namespace: of the operator's pods, whose log and metrics are kept if readable.
    """

    cluster: Cluster
    namespace: str
    operator_namespace: str


async def read(source: SnapshotSource, name: str) -> Snapshot:
    """Everything that is kept of a resource; what cannot be read becomes a note."""
    kept = Snapshot()
    try:
        kept.status = await status.read(source.cluster, source.namespace, name)
        kept.notes += kept.status.pop("notes")
        children = await status.read_children(source.cluster, source.namespace, name)
    except (ClusterError, BadRequestError) as error:
        kept.notes.append(str(error))
        return kept
    await asyncio.gather(*(_pod(source, kept, pod) for pod in children.pods))
    await _events(source, kept, name, {pod["metadata"]["name"] for pod in children.pods})
    await _operator(source, kept, name)
    kept.notes = sorted(set(kept.notes))
    return kept


async def _pod(source: SnapshotSource, kept: Snapshot, pod: Json) -> None:
    """Keep the end of a pod's log, also of the run before a restart, and a server's metrics."""
    namespace, name = source.namespace, pod["metadata"]["name"]
    for container in started(pod):
        key = container.label.replace("/", "-")
        for previous in (False, True)[: 1 + bool(container.restarts)]:
            log = _log(source.cluster, container, previous=previous)
            await _keep(kept, kept.logs, f"{key}{'-previous' if previous else ''}", name, log)
    component = pod["metadata"].get("labels", {}).get(names.COMPONENT)
    if component in _SERVERS and pod.get("status", {}).get("phase") == "Running":
        page = source.cluster.pod_metrics(namespace, name, metrics_port(pod))
        await _keep(kept, kept.metrics, name, name, page)


async def _log(cluster: Cluster, container: ContainerRun, *, previous: bool) -> str:
    """The end of a log.

    The API server limits the bytes of a response and leaves out what follows, which is the log's
    end. So fewer lines are read until the response is below the limit.
    """
    lines = LOG_LINES
    place = (container.namespace, container.pod)
    while True:
        log = await cluster.log(*place, lines, container.name, previous=previous)
        if len(log.encode()) < LOG_BYTES or lines == 1:
            return log
        lines //= 2


async def _events(source: SnapshotSource, kept: Snapshot, name: str, pods: set[str]) -> None:
    try:
        events = await source.cluster.list("events.k8s.io/v1", "Event", source.namespace)
    except ClusterError as error:
        kept.notes.append(f"events are not included: {error}")
        return
    by_object = [(str((item.get("regarding") or {}).get("name", "")), item) for item in events]
    concerned = [
        _event(item)
        for regarding, item in by_object
        if regarding == name or regarding.startswith(f"{name}-") or regarding in pods
    ]
    kept.events = sorted(concerned, key=lambda item: item["at"])


async def _operator(source: SnapshotSource, kept: Snapshot, name: str) -> None:
    """Keep the operator's log lines with the resource's name, and no metrics of others."""
    place = source.operator_namespace
    try:
        pods = await source.cluster.list("v1", "Pod", place, names.OPERATOR)
    except ClusterError as error:
        kept.notes.append(f"log and metrics of the operator are not included: {error}")
        return
    if not pods:
        kept.notes.append(
            f"log and metrics of the operator are not included: no pod in namespace {place} has "
            f"the label {names.OPERATOR}; --operator-namespace selects another namespace"
        )
    for pod in pods:
        operator = pod["metadata"]["name"]
        log = source.cluster.log(place, operator, LOG_LINES)
        page = source.cluster.pod_metrics(place, operator, _OPERATOR_METRICS)
        await _keep(kept, kept.logs, operator, operator, log)
        await _keep(kept, kept.metrics, operator, operator, page)
        _filter(kept.logs, operator, lambda line: name in line)
        _filter(
            kept.metrics, operator, lambda line: 'namespace="' not in line or f'"{name}"' in line
        )


def _filter(texts: dict[str, str], key: str, keep: Callable[[str], bool]) -> None:
    if key in texts:
        lines = texts[key].splitlines()
        texts[key] = "".join(f"{line}\n" for line in lines if keep(line))


async def _keep(
    kept: Snapshot, texts: dict[str, str], key: str, pod: str, request: Awaitable[str]
) -> None:
    try:
        texts[key] = await request
    except Missing:
        return  # the pod was deleted since, or its container has not started
    except ClusterError as error:
        kept.notes.append(f"a part of pod {pod} is not included: {error}")


def _event(event: Mapping[str, Any]) -> Json:
    regarding = event.get("regarding") or {}
    return {
        "at": event.get("eventTime") or event.get("deprecatedLastTimestamp") or "",
        "type": event.get("type", ""),
        "reason": event.get("reason", ""),
        "object": f"{regarding.get('kind', '')} {regarding.get('name', '')}",
        "note": event.get("note", ""),
    }
