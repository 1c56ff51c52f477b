"""Read everything that a decision needs: the children of a resource and what surrounds them.

`Reconciler` calls `observe` before each decision. With `Views`, only logs, events, the user's own
claim, and kinds whose watch is interrupted are read from the API server, in parallel rounds. A log
that cannot be read is empty, and a kind that the cluster lacks has no objects. Every other failed
read raises an error.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from specdec.api import names
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.api.model import API_VERSION, KIND, SpeculativeModel
from specdec.cluster import Cluster, ClusterError, Missing
from specdec.controller import event_notes
from specdec.desired import optional_objects, prune, tls
from specdec.desired.serving import CONTAINER
from specdec.pipeline.observed import (
    POD_JOB,
    PROGRESS_LINES,
    Neighbours,
    Object,
    Observed,
    server_log_key,
)

logger = logging.getLogger(__name__)

# Components whose pods log their progress.
PROGRESS_COMPONENTS = frozenset({"engine", "fetch"})
# Enough for the log of a server from its first error to its exit.
CRASH_LINES = 400
# Most Jobs and servers start without a problem, and the first lines of a log report no progress.
NEW = timedelta(seconds=5)
ENDPOINT_SLICE = ("discovery.k8s.io/v1", "EndpointSlice")
SERVICE_LABEL = "kubernetes.io/service-name"
Json = dict[str, Any]


async def observe(cluster: Cluster, model: SpeculativeModel) -> Observed:
    """A snapshot of everything around a resource; raises ClusterError."""
    namespace, name = model.metadata.namespace, model.metadata.name
    own, sharing = f"{names.MODEL}={name}", names.sharer(name)
    (
        (claim, deployments),
        (own_jobs, shared_jobs, own_maps, shared_maps, services, slices, prunes),
    ) = await asyncio.gather(
        _get_claim_and_servers(cluster, model),
        asyncio.gather(
            cluster.list("batch/v1", "Job", namespace, own),
            cluster.list("batch/v1", "Job", namespace, sharing),
            cluster.list("v1", "ConfigMap", namespace, own),
            cluster.list("v1", "ConfigMap", namespace, sharing),
            cluster.list("v1", "Service", namespace, own),
            cluster.list(*ENDPOINT_SLICE, namespace, _endpoint_slice_selector(model)),
            cluster.list("v1", "Pod", namespace, _prune_selector(model)),
        ),
    )
    kinds = optional_objects.kinds(model) | optional_objects.remembered(services)
    # Pods are read after Jobs: a Job that has ended then has pods that have ended.
    group, own_pods, shared_pods, listed = await asyncio.gather(
        _get_group(cluster, model, own_maps),
        cluster.list("v1", "Pod", namespace, own),
        # Pods of a shared Job have no label of a resource, only that of their Job.
        _list_pods_of(cluster, namespace, shared_jobs),
        asyncio.gather(*(_list_optional(cluster, model, k) for k in sorted(kinds))),
    )
    pods = _distinct(own_pods + shared_pods)
    now = datetime.now(UTC)
    jobs = [job for job in (*own_jobs, *shared_jobs) if not is_new(job, now)]
    logs, crashes = await _read_logs(cluster, pods, now)
    refusals = await event_notes.refusals(cluster, namespace, jobs, pods)
    return Observed(
        now=now,
        claim=claim,
        jobs=_by_name([*own_jobs, *shared_jobs]),
        pods=tuple(pods),
        config_maps=_by_name([*own_maps, *shared_maps]),
        deployments=deployments,
        services=_by_name(services),
        endpoints={item["metadata"]["name"]: _ready_count(item, slices) for item in services},
        logs=logs,
        refusals=refusals,
        probes=await event_notes.probes(cluster, namespace, pods),
        crashes=crashes,
        group=group if group and belongs_to(group, model) else None,
        optional_objects={
            (item["kind"], item["metadata"]["name"]): item for items in listed for item in items
        },
        peer=await _get_other(cluster, model, _split_target(model)),
        baseline=await _get_other(cluster, model, model.spec.benchmark.baseline_name),
        neighbours=await _get_neighbours(cluster.live, model),
        pruning=next((p["metadata"]["name"] for p in prunes if _deletes(p)), ""),
    )


async def _get_claim_and_servers(
    cluster: Cluster, model: SpeculativeModel
) -> tuple[Object | None, dict[str, Object]]:
    """The claim, and the resource's servers by role; one may be left from an earlier spec."""
    namespace = model.metadata.namespace
    # Views have only objects with the operator's label.
    claims = cluster if model.spec.storage.existing_claim is None else cluster.live
    claim, *deployments = await asyncio.gather(
        claims.find("v1", "PersistentVolumeClaim", namespace, names.claim_name(model)),
        *(
            cluster.find("apps/v1", "Deployment", namespace, names.server_name(model, role))
            for role in names.SERVERS
        ),
    )
    return claim, {
        role: live
        for role, live in zip(names.SERVERS, deployments, strict=True)
        if live and belongs_to(live, model)
    }


def belongs_to(live: Object, model: SpeculativeModel) -> bool:
    """Whether an object belongs to this resource, and does not merely have the expected name.

    If somebody has removed its labels, the owner reference decides.
    """
    labels = live["metadata"].get("labels", {})
    if labels.get(names.MANAGED_BY) == names.MANAGER:
        return bool(labels.get(names.MODEL) == model.metadata.name)
    owners = live["metadata"].get("ownerReferences", [])
    return any(owner["uid"] == model.metadata.uid for owner in owners)


async def _get_group(
    cluster: Cluster, model: SpeculativeModel, config_maps: list[Json]
) -> Object | None:
    """The LeaderWorkerSet, if the resource needs one or the ConfigMap of an earlier one exists.

    Otherwise no request is sent: most clusters do not have the kind.
    """
    namespace, name = model.metadata.namespace, names.group_name(model)
    if model.spec.serving.nodes_per_replica < 2 and name not in _by_name(config_maps):
        return None
    return await cluster.find(names.GROUP_API, names.GROUP_KIND, namespace, name)


def _split_target(model: SpeculativeModel) -> str | None:
    split = model.spec.networking.split
    return split.model_ref.name if split else None


async def _get_other(cluster: Cluster, model: SpeculativeModel, name: str | None) -> Object | None:
    """Another resource of the namespace, if the spec names one."""
    if name is None:
        return None
    return await cluster.get(API_VERSION, KIND, model.metadata.namespace, name)


async def _get_neighbours(cluster: Cluster, model: SpeculativeModel) -> Neighbours | None:
    """The objects that show which directories of the claim are in use, if any may be deleted.

    A copy that lacks one of them would cost files, so they are read from the API server.
    """
    if model.spec.revision_history_limit is None or not model.status.get("unused"):
        return None
    namespace, managed = model.metadata.namespace, f"{names.MANAGED_BY}={names.MANAGER}"
    # The pods are listed first: a server that starts after that is among the workloads.
    pods = await cluster.list("v1", "Pod", namespace, f"{managed},{names.REPOSITORY}")
    resources, deployments, groups = await asyncio.gather(
        cluster.list(API_VERSION, KIND, namespace),
        cluster.list("apps/v1", "Deployment", namespace, managed),
        _list_groups(cluster, namespace, managed),
    )
    revisions = frozenset(pod["metadata"]["labels"][names.REPOSITORY] for pod in pods)
    return Neighbours(tuple(resources), (*deployments, *groups), revisions)


async def _list_groups(cluster: Cluster, namespace: str, selector: str) -> list[Json]:
    try:
        return await cluster.list(names.GROUP_API, names.GROUP_KIND, namespace, selector)
    except Missing:
        return []


def _prune_selector(model: SpeculativeModel) -> str:
    """Selects the pods of prune Jobs on the claim, also those that a person started."""
    claim = names.claim_label(names.claim_name(model))
    return f"{names.COMPONENT}={prune.COMPONENT},{names.CLAIM}={claim}"


def _deletes(pod: Object) -> bool:
    """Whether the pod of a prune Job may still delete directories."""
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    arguments = [a for c in pod["spec"]["containers"] for a in c.get("command", [])]
    return not ended and prune.DELETE in arguments


async def _list_optional(cluster: Cluster, model: SpeculativeModel, kind: str) -> list[Json]:
    """The resource's objects of an optional kind; none where the cluster lacks the kind."""
    own = f"{names.MODEL}={model.metadata.name}"
    try:
        return await cluster.list(
            OPTIONAL_KINDS[kind].version, kind, model.metadata.namespace, own
        )
    except Missing:
        return []


def _endpoint_slice_selector(model: SpeculativeModel) -> str:
    """Selects the EndpointSlices of all Services that the resource may have."""
    servers = ",".join(names.server_name(model, role) for role in names.SERVERS)
    return f"{SERVICE_LABEL} in ({servers})"


def _ready_count(service: Object, slices: list[Json]) -> int:
    """The number of ready endpoints of a Service; an endpoint without the condition is ready."""
    return sum(
        endpoint.get("conditions", {}).get("ready") is not False
        for item in slices
        if item["metadata"]["labels"][SERVICE_LABEL] == service["metadata"]["name"]
        for endpoint in item.get("endpoints") or []
    )


async def _list_pods_of(cluster: Cluster, namespace: str, jobs: list[Json]) -> list[Json]:
    if not jobs:
        return []
    job_names = ",".join(sorted(job["metadata"]["name"] for job in jobs))
    return await cluster.list("v1", "Pod", namespace, f"{POD_JOB} in ({job_names})")


def is_new(live: Object, now: datetime) -> bool:
    """Whether an object was created so recently that its log and events need no reading yet."""
    created = live["metadata"].get("creationTimestamp")
    return created is not None and now - datetime.fromisoformat(created) < NEW


async def _read_logs(
    cluster: Cluster, pods: list[Json], now: datetime
) -> tuple[dict[str, str], dict[str, str]]:
    """The last lines of running pods, and those of servers that ended, each by their key."""
    logs = await asyncio.gather(
        *(
            _read_log(cluster, pod, key, container, PROGRESS_LINES)
            for pod in pods
            for key, container in _containers_to_read(pod, now)
        )
    )
    crashes = await asyncio.gather(
        *(
            _read_log(
                cluster, pod, pod["metadata"]["name"], container, CRASH_LINES, previous=restarted
            )
            for pod in pods
            for container, restarted in _ended_container(pod)
        )
    )
    return dict(logs), dict(crashes)


def _containers_to_read(pod: Object, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield the key in `Observed.logs` and the container of each log to read.

    An empty name selects the only container of a pod.
    Jobs log their progress. The certificate container beside a server logs a fingerprint of the
    certificate files when they change. A server that is not ready yet logs which files it waits
    for.
    """
    component = pod["metadata"].get("labels", {}).get(names.COMPONENT)
    name, certificate_container = pod["metadata"]["name"], _certificate_container(pod)
    if pod.get("status", {}).get("phase") != "Running" or is_new(pod, now):
        return
    if component in PROGRESS_COMPONENTS or certificate_container:
        yield name, certificate_container
    if component in names.SERVERS.values() and _server_is_starting(pod):
        yield server_log_key(pod), CONTAINER


def _server_is_starting(pod: Object) -> bool:
    """Whether a pod's server runs and is not ready."""
    return any(
        status.get("name") == CONTAINER
        and "running" in status.get("state", {})
        and not status.get("ready")
        for status in pod["status"].get("containerStatuses", [])
    )


def _certificate_container(pod: Object) -> str:
    """The name of the container that watches the certificate; empty for a pod without one."""
    containers = [item["name"] for item in pod.get("spec", {}).get("containers", [])]
    return tls.WATCHER if tls.WATCHER in containers else ""


def _ended_container(pod: Object) -> list[tuple[str, bool]]:
    """The container of a server that ended, if any, and whether it was restarted since."""
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


async def _read_log(
    cluster: Cluster, pod: Object, key: str, container: str, lines: int, *, previous: bool = False
) -> tuple[str, str]:
    """The key, and the last lines of a container's log; empty if the log cannot be read.

    Logs only explain a state, so a decision does not need them.
    """
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    try:
        return key, await cluster.log(namespace, name, lines, container, previous=previous)
    except ClusterError as error:
        # At debug level, because it may repeat every few seconds; a metric counts it.
        logger.debug("no log of pod %s: %s", name, error)
        return key, ""


def _by_name(objects: list[Json]) -> Mapping[str, Object]:
    return {item["metadata"]["name"]: item for item in objects}


def _distinct(pods: list[Json]) -> list[Json]:
    return list({pod["metadata"]["uid"]: pod for pod in pods}.values())
