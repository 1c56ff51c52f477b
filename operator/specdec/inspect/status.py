"""What `specdec status` tells of a resource: its status, and what lives around it now."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from specdec.api import names
from specdec.cluster import Cluster, ClusterError, Missing, Rejected
from specdec.inspect import session
from specdec.pipeline.diagnosis import Progress, blocked, last_progress
from specdec.pipeline.observed import POD_JOB, PROGRESS_LINES, job_state, pod_ready

Json = dict[str, Any]
FORMAT = "specdec.dev/status/v1"
# Of the status, as the API has them: docs/api.md explains every field.
_KEPT = (
    *("observedGeneration", "phase", "url", "replicas", "readyReplicas", "conditions", "models"),
    *("engines", "repository", "plan", "speculation", "benchmark", "serving", "endpoints"),
)


@dataclass
class Around:
    """Live Jobs and pods of a resource, the newest first.

    Attributes:
        progress: what a running Job says of itself, by the name of the Job.
        notes: one sentence for each thing that could not be read.
    """

    jobs: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    progress: dict[str, Progress] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


async def around(cluster: Cluster, namespace: str, name: str) -> Around:
    """What belongs to a resource; what its reader may not see is a note, not an error.

    Raises:
        ClusterError: the API server does not answer.
    """
    found = Around()
    own, shared = f"{names.MODEL}={name}", names.sharer(name)

    async def some(kind: tuple[str, str], selector: str) -> list[Json]:
        try:
            return await cluster.list(*kind, namespace, selector)
        except Rejected as error:
            found.notes.append(str(error))
            return []

    job, pod = ("batch/v1", "Job"), ("v1", "Pod")
    mine, theirs, pods = await asyncio.gather(some(job, own), some(job, shared), some(pod, own))
    found.jobs = _newest(mine + theirs)
    if theirs:
        # Pods of a shared Job carry no resource's name.
        wanted = ",".join(sorted(one["metadata"]["name"] for one in theirs))
        pods += await some(pod, f"{POD_JOB} in ({wanted})")
    found.pods = _newest(pods)
    await asyncio.gather(*(_progress(cluster, found, one) for one in found.jobs))
    found.notes = sorted(set(found.notes))
    return found


async def _progress(cluster: Cluster, found: Around, job: Json) -> None:
    """What the newest running pod of an unfinished Job printed last about how far it is."""
    name = job["metadata"]["name"]
    pods = [p for p in found.pods if p["metadata"].get("labels", {}).get(POD_JOB) == name]
    if job_state(job) != "Running" or not pods or pods[0]["status"].get("phase") != "Running":
        return
    meta = pods[0]["metadata"]
    try:
        far = last_progress(await cluster.log(meta["namespace"], meta["name"], PROGRESS_LINES))
    except Missing:
        return  # the pod went meanwhile
    except ClusterError as error:
        found.notes.append(f"how far Job {name} is cannot be read: {error}")
        return
    if far is not None:
        found.progress[name] = far


async def read(cluster: Cluster, namespace: str, name: str) -> Json:
    """Everything about one resource, as `specdec status NAME --json` prints it.

    Raises:
        ClusterError: nobody answers, or the resource must not be read.
        BadRequestError: there is no such resource.
    """
    body = await session.resource(cluster, namespace, name)
    found = await around(cluster, namespace, name)
    return {
        **summary(body),
        "jobs": [_job(one, found.progress.get(one["metadata"]["name"])) for one in found.jobs],
        "pods": [_pod(one) for one in found.pods if _last_progress(one)],
        "notes": found.notes,
    }


async def read_all(cluster: Cluster, namespace: str | None) -> list[Json]:
    """A summary of every resource of a namespace, or of all; raises as `read`."""
    return [summary(one) for one in await session.resources(cluster, namespace)]


def summary(body: Json) -> Json:
    """A resource in the words of its own status."""
    meta, spec, status = body["metadata"], body["spec"], body.get("status", {})
    serving, speculation = spec.get("serving", {}), spec.get("speculation", {})
    return {
        "format": FORMAT,
        "namespace": meta["namespace"],
        "name": meta["name"],
        "createdAt": meta["creationTimestamp"],
        "generation": meta.get("generation", 1),
        "method": speculation.get("method", ""),
        "backend": spec.get("runtime", {}).get("backend", ""),
        "suspended": bool(spec.get("suspend")),
        "wantedReplicas": serving.get("replicas", 1),
        **{key: status[key] for key in _KEPT if key in status},
    }


def _job(job: Json, far: Progress | None) -> Json:
    meta, status = job["metadata"], job.get("status", {})
    deleting = meta.get("deletionTimestamp")
    shown: Json = {
        "name": meta["name"],
        "component": meta.get("labels", {}).get(names.COMPONENT, ""),
        "state": "Deleting" if deleting else job_state(job),
        "createdAt": meta["creationTimestamp"],
        "failures": status.get("failed", 0),
    }
    if "completionTime" in status:
        shown["completedAt"] = status["completionTime"]
    return shown if far is None else {**shown, "phase": far.phase, "percent": far.percent}


def _pod(pod: Json) -> Json:
    meta, status = pod["metadata"], pod.get("status", {})
    statuses = status.get("containerStatuses", [])
    return {
        "name": meta["name"],
        "component": meta.get("labels", {}).get(names.COMPONENT, ""),
        "phase": "Terminating" if meta.get("deletionTimestamp") else status.get("phase", ""),
        "ready": pod_ready(pod),
        "restarts": sum(one.get("restartCount", 0) for one in statuses),
        "node": pod.get("spec", {}).get("nodeName", ""),
        "createdAt": meta["creationTimestamp"],
        "trouble": trouble(pod),
    }


def trouble(pod: Json) -> str:
    """Why a pod does not run, in the scheduler's or the kubelet's words; empty if it does."""
    stuck = blocked(pod)
    if stuck is not None:
        return f"{stuck.reason}: {stuck.message}"
    for one in pod.get("status", {}).get("containerStatuses", []):
        waiting = one.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def _last_progress(pod: Json) -> bool:
    """Whether a pod is worth a line: one that ended is told by its Job."""
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def _newest(found: list[Json]) -> list[Json]:
    distinct = {one["metadata"]["uid"]: one for one in found}.values()
    return sorted(
        distinct,
        key=lambda one: (str(one["metadata"]["creationTimestamp"]), one["metadata"]["name"]),
        reverse=True,
    )
