"""Read everything a decision needs, live, in a few rounds of requests."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from specdec.api import names
from specdec.api.kinds import EXTRAS
from specdec.api.model import API_VERSION, KIND, SpeculativeModel
from specdec.cluster import Cluster, ClusterError, Missing
from specdec.desired import optional_objects, tls
from specdec.desired.serving import CONTAINER
from specdec.pipeline.observed import POD_JOB, PROGRESS_LINES, Object, Observed, server_log

logger = logging.getLogger(__name__)

# Components whose pods log their progress.
TALKATIVE = frozenset({"engine", "fetch"})
# Enough for what a server writes from its first error to its end: tables of backends and models.
CRASH_LINES = 400
SLICE = ("discovery.k8s.io/v1", "EndpointSlice")
SERVICE = "kubernetes.io/service-name"


async def observe(cluster: Cluster, model: SpeculativeModel) -> Observed:
    """The snapshot of a resource's surroundings; raises ClusterError."""
    namespace, name = model.metadata.namespace, model.metadata.name
    own, sharing = f"{names.MODEL}={name}", names.sharer(name)
    (
        (claim, *deployments),
        (own_jobs, shared_jobs, pods, own_maps, shared_maps, services, slices),
    ) = await asyncio.gather(
        asyncio.gather(
            cluster.get("v1", "PersistentVolumeClaim", namespace, names.claim_name(model)),
            # By name, whatever the resource wants now: a server may be left from before.
            *(
                cluster.get("apps/v1", "Deployment", namespace, names.server_name(model, role))
                for role in names.SERVERS
            ),
        ),
        asyncio.gather(
            cluster.list("batch/v1", "Job", namespace, own),
            cluster.list("batch/v1", "Job", namespace, sharing),
            cluster.list("v1", "Pod", namespace, own),
            cluster.list("v1", "ConfigMap", namespace, own),
            cluster.list("v1", "ConfigMap", namespace, sharing),
            cluster.list("v1", "Service", namespace, own),
            cluster.list(*SLICE, namespace, _slices_of(model)),
        ),
    )
    group = await _group(cluster, model, own_maps)
    kinds = optional_objects.kinds(model) | optional_objects.remembered(services)
    found = await asyncio.gather(*(_extras(cluster, model, kind) for kind in sorted(kinds)))
    # Pods of a shared Job belong to no resource by label: they are found by their Job.
    pods = _distinct(pods + await _pods_of(cluster, namespace, shared_jobs))
    sources = [(pod, *source) for pod in pods for source in _sources(pod)]
    logs = await asyncio.gather(*(_log(cluster, *source) for source in sources))
    crashes = await asyncio.gather(
        *(
            _log(cluster, pod, pod["metadata"]["name"], container, CRASH_LINES, previous=previous)
            for pod in pods
            for container, previous in _ended(pod)
        )
    )
    return Observed(
        now=datetime.now(UTC),
        claim=claim,
        jobs=_by_name([*own_jobs, *shared_jobs]),
        pods=tuple(pods),
        config_maps=_by_name([*own_maps, *shared_maps]),
        deployments={
            role: live
            for role, live in zip(names.SERVERS, deployments, strict=True)
            if live and belongs(live, model)
        },
        services=_by_name(services),
        endpoints={one["metadata"]["name"]: _ready(one, slices) for one in services},
        logs=dict(logs),
        crashes=dict(crashes),
        group=group if group and belongs(group, model) else None,
        extras={(one["kind"], one["metadata"]["name"]): one for some in found for one in some},
        peer=await _peer(cluster, model),
    )


def belongs(live: Object, model: SpeculativeModel) -> bool:
    """Whether an object found by its name was made for this resource, and is no namesake.

    By label, or by owner when somebody took the labels away.
    """
    labels = live["metadata"].get("labels", {})
    if labels.get(names.MANAGED_BY) == names.MANAGER:
        return bool(labels.get(names.MODEL) == model.metadata.name)
    owners = live["metadata"].get("ownerReferences", [])
    return any(owner["uid"] == model.metadata.uid for owner in owners)


async def _group(
    cluster: Cluster, model: SpeculativeModel, maps: list[dict[str, Any]]
) -> Object | None:
    """The LeaderWorkerSet, looked for where the resource needs one, or left its program behind.

    Most clusters do not know the kind, and most resources need no group.
    """
    namespace, name = model.metadata.namespace, names.group_name(model)
    if model.spec.serving.nodes_per_replica < 2 and name not in _by_name(maps):
        return None
    return await cluster.get(names.GROUP_API, names.GROUP_KIND, namespace, name)


async def _peer(cluster: Cluster, model: SpeculativeModel) -> Object | None:
    """The resource that answers a share of the route's requests."""
    split = model.spec.networking.split
    if split is None:
        return None
    return await cluster.get(API_VERSION, KIND, model.metadata.namespace, split.model_ref.name)


async def _extras(cluster: Cluster, model: SpeculativeModel, kind: str) -> list[dict[str, Any]]:
    """The resource's objects of a kind; none where the cluster does not know it."""
    own = f"{names.MODEL}={model.metadata.name}"
    try:
        return await cluster.list(EXTRAS[kind].version, kind, model.metadata.namespace, own)
    except Missing:
        return []


def _slices_of(model: SpeculativeModel) -> str:
    """What selects the endpoints of all Services that the resource may have."""
    servers = ",".join(names.server_name(model, role) for role in names.SERVERS)
    return f"{SERVICE} in ({servers})"


def _ready(service: Object, slices: list[dict[str, Any]]) -> int:
    """How many addresses behind a Service are ready; a slice that does not say it means yes."""
    return sum(
        end.get("conditions", {}).get("ready") is not False
        for one in slices
        if one["metadata"]["labels"][SERVICE] == service["metadata"]["name"]
        for end in one.get("endpoints") or []
    )


async def _pods_of(
    cluster: Cluster, namespace: str, jobs: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    if not jobs:
        return []
    wanted = ",".join(sorted(job["metadata"]["name"] for job in jobs))
    return await cluster.list("v1", "Pod", namespace, f"{POD_JOB} in ({wanted})")


def _sources(pod: Object) -> Iterator[tuple[str, str]]:
    """Whose last lines of a pod are read, under which name: container (empty for the only one).

    A Job says how far it is, the container beside a server what certificate it has, and a server
    that is not ready yet whether it waits for files.
    """
    component = pod["metadata"].get("labels", {}).get(names.COMPONENT)
    name, watcher = pod["metadata"]["name"], _watcher(pod)
    if pod.get("status", {}).get("phase") != "Running":
        return
    if component in TALKATIVE or watcher:
        yield name, watcher
    if component in names.SERVERS.values() and _starts(pod):
        yield server_log(pod), CONTAINER


def _starts(pod: Object) -> bool:
    """Whether a pod's server runs and is not ready."""
    return any(
        one.get("name") == CONTAINER and "running" in one.get("state", {}) and not one.get("ready")
        for one in pod["status"].get("containerStatuses", [])
    )


def _watcher(pod: Object) -> str:
    """The container of a pod that is to be asked where there are several; else empty."""
    containers = [one["name"] for one in pod.get("spec", {}).get("containers", [])]
    return tls.WATCHER if tls.WATCHER in containers else ""


def _ended(pod: Object) -> list[tuple[str, bool]]:
    """The container of a server that ended, and whether another run of it has been asked for."""
    component = pod["metadata"].get("labels", {}).get(names.COMPONENT)
    if component not in (*names.SERVERS.values(), names.WORKER):
        return []
    ended = [
        (status["name"], "terminated" not in status.get("state", {}))
        for status in pod.get("status", {}).get("containerStatuses", [])
        if not status.get("ready")
        and any("terminated" in status.get(key, {}) for key in ("state", "lastState"))
    ]
    return ended[:1]


async def _log(
    cluster: Cluster,
    pod: Object,
    key: str,
    container: str,
    lines: int = PROGRESS_LINES,
    *,
    previous: bool = False,
) -> tuple[str, str]:
    """The key and a container's last lines; they explain, so a failure only costs the text."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    try:
        return key, await cluster.log(namespace, name, lines, container, previous=previous)
    except ClusterError as error:
        # As often as the pod is looked at, for hours: the metrics count what failed.
        logger.debug("no log of pod %s: %s", name, error)
        return key, ""


def _by_name(objects: list[dict[str, Any]]) -> Mapping[str, Object]:
    return {item["metadata"]["name"]: item for item in objects}


def _distinct(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({pod["metadata"]["uid"]: pod for pod in pods}.values())
