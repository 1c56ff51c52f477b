"""Find out what the resources of a claim use, and let a Job list or delete the rest.

`specdec prune` calls `prune`. Only a pod can read the volume, so a Job does the work, with the
caller's right to create it. A resource uses what its status names, the repositories that its live
servers serve, and what the manifests of these repositories list.
"""

import contextlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from specdec.api import names, released
from specdec.api.jobs import Jobs
from specdec.api.model import SpeculativeModel
from specdec.api.pods import Pods
from specdec.client.errors import BadRequestError, RefusedError
from specdec.cluster import Cluster, Conflict, Rejected
from specdec.desired import pod
from specdec.desired import prune as desired
from specdec.desired.pod import Volume
from specdec.pipeline.observed import job_state
from specdec.pipeline.volume.references import Directories, claim_of, keep
from specdec.tools.inspect import job_run
from specdec.tools.inspect.session import resources

Json = dict[str, Any]
FORMAT = "specdec.dev/prune/v1"
_INTERVAL = 1.0
_LOG_LINES = 100_000
_CLAIM = ("v1", "PersistentVolumeClaim")
_SERVERS = (("apps/v1", "Deployment"), (names.GROUP_API, names.GROUP_KIND))


@dataclass(frozen=True)
class PruneRequest:
    """What to prune.

    Attributes:
        namespace, claim: of the volume.
        older_than: the age in seconds from which something unused is deleted.
        delete: whether to delete; otherwise nothing is changed.
        image: the operator's; empty means that of its Deployment.
        operator_namespace: of that Deployment.
    """

    namespace: str
    claim: str
    older_than: float
    delete: bool
    image: str
    operator_namespace: str


async def prune(
    cluster: Cluster,
    request: PruneRequest,
    interval: float = _INTERVAL,
    report: Callable[[str], None] | None = None,
) -> Json:
    """What is on the volume, as `specdec prune --json` prints it.

    `report` is called with what the Job waits for or does, whenever that changes.

    Raises:
        BadRequestError: there is no such claim.
        RefusedError: another Job is writing to the volume, or the Job failed.
        ClusterError: the API server refused a request.
    """
    bodies = await resources(cluster, request.namespace)
    claim = await cluster.get(*_CLAIM, request.namespace, request.claim)
    if claim is None:
        claims = sorted({claim_of(body) for body in bodies})
        hint = f"its resources use {', '.join(claims)}" if claims else "it has no resources"
        raise BadRequestError(
            f"there is no claim {request.claim} in namespace {request.namespace}: {hint}"
        )
    owners = [body for body in bodies if claim_of(body) == request.claim]
    if request.delete:
        await _require_quiet(cluster, request)
    servers = await _servers(cluster, request.namespace)
    image = request.image or await _operator_image(cluster, request.operator_namespace)
    body = _job(request, image, claim, owners, keep(bodies, servers, request.claim))
    log = await _run(cluster, body, interval, report)
    return {
        "format": FORMAT,
        "claim": request.claim,
        "resources": sorted(owner["metadata"]["name"] for owner in owners),
        "items": list(_items(log)),
    }


async def _require_quiet(cluster: Cluster, request: PruneRequest) -> None:
    """Raise RefusedError while a Job may be writing directories that no status names yet."""
    for job in await cluster.list("batch/v1", "Job", request.namespace):
        labels = job["spec"]["template"]["metadata"].get("labels", {})
        mine = labels.get(names.CLAIM) == names.claim_label(request.claim)
        if mine and job_state(job) == "Running" and not job["spec"].get("suspend"):
            raise RefusedError(
                f"Job {job['metadata']['name']} uses claim {request.claim}: wait until it ends"
            )


async def _servers(cluster: Cluster, namespace: str) -> list[Json]:
    """The workloads of a namespace, of the kinds that the cluster has."""
    kinds = [kind for kind in _SERVERS if await cluster.serves(*kind)]
    return [body for kind in kinds for body in await cluster.list(*kind, namespace)]


async def _operator_image(cluster: Cluster, namespace: str) -> str:
    """The image of the operator's Deployment; the released one if it cannot be read."""
    try:
        deployments = await cluster.list("apps/v1", "Deployment", namespace, names.OPERATOR)
    except Rejected:
        deployments = []
    images = [d["spec"]["template"]["spec"]["containers"][0]["image"] for d in deployments]
    return str(images[0]) if images else released.OPERATOR_IMAGE


def _job(
    request: PruneRequest, image: str, claim: Json, owners: list[Json], used: Directories
) -> Json:
    modes = claim.get("spec", {}).get("accessModes", [])
    volume = Volume(request.claim, claim["metadata"]["uid"], "ReadWriteMany" not in modes)
    model = next(_valid(owners), None)
    return desired.job(
        f"specdec-prune-{secrets.token_hex(4)}",
        request.namespace,
        volume,
        image,
        used,
        request.older_than,
        delete=request.delete,
        pods=model.spec.pods if model else Pods(),
        jobs=model.spec.jobs if model else Jobs(),
        pull_secrets=pod.pull_secrets(model) if model else (),
    )


def _valid(bodies: Iterable[Json]) -> Iterator[SpeculativeModel]:
    for body in bodies:
        with contextlib.suppress(ValueError):
            yield SpeculativeModel.parse(body)


async def _run(
    cluster: Cluster, body: Json, interval: float, report: Callable[[str], None] | None
) -> str:
    """Run a Job and return its log; the Job is deleted."""
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    try:
        pods = await job_run.run(cluster, body, interval, report)
        return await cluster.log(namespace, pods[0]["metadata"]["name"], _LOG_LINES)
    finally:
        await _remove(cluster, namespace, name)


async def _remove(cluster: Cluster, namespace: str, name: str) -> None:
    """Delete the Job; if the caller may not, the Job disappears some minutes after its end."""
    with contextlib.suppress(Rejected):
        while (job := await cluster.get("batch/v1", "Job", namespace, name)) is not None:
            try:
                await cluster.delete(job)
            except Conflict:
                continue  # its status has changed since
            return


def _items(log: str) -> Iterator[Json]:
    for line in log.splitlines():
        if line.startswith('{"item"'):
            yield json.loads(line)["item"]
