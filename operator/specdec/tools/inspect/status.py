"""Read a resource with its live Jobs and pods, for `specdec status`.

The result is the JSON object that `specdec status --json` prints, with stable keys. Objects that
the caller may not read become notes; only the resource itself is required.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from specdec.api import names
from specdec.cluster import Cluster, ClusterError, Missing, Rejected
from specdec.pipeline.observed import POD_JOB, PROGRESS_LINES, job_state, pod_ready
from specdec.pipeline.pods import containers
from specdec.pipeline.pods.diagnosis import Progress, blocked, last_progress
from specdec.tools.inspect import session

Json = dict[str, Any]
FORMAT = "specdec.dev/status/v1"
# Fields that are copied from the status; docs/api.md explains them.
_STATUS_FIELDS = (
    *("observedGeneration", "phase", "url", "replicas", "readyReplicas", "conditions", "models"),
    *("engines", "imageContract", "repository", "plan", "speculation", "benchmark", "serving"),
    "endpoints",
)


@dataclass
class Children:
    """The live Jobs and pods of a resource, newest first.

    Attributes:
        progress: the last progress in the log of each running Job, by the name of the Job.
        notes: one sentence for each object that could not be read.
    """

    jobs: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    progress: dict[str, Progress] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


async def read_children(cluster: Cluster, namespace: str, name: str) -> Children:
    """Read the Jobs and pods of a resource as `list_children`, and the progress of its Jobs."""
    children = await list_children(cluster, namespace, name)
    await asyncio.gather(*(_read_progress(cluster, children, item) for item in children.jobs))
    children.notes = sorted(set(children.notes))
    return children


async def list_children(cluster: Cluster, namespace: str, name: str) -> Children:
    """Read the Jobs and pods of a resource; those that the caller may not read become notes.

    Raises:
        ClusterError: the API server does not respond.
    """
    children = Children()
    own, shared = f"{names.MODEL}={name}", names.sharer(name)

    async def list_or_note(kind: tuple[str, str], selector: str) -> list[Json]:
        try:
            return await cluster.list(*kind, namespace, selector)
        except Rejected as error:
            children.notes.append(str(error))
            return []

    job, pod = ("batch/v1", "Job"), ("v1", "Pod")
    own_jobs, shared_jobs, pods = await asyncio.gather(
        list_or_note(job, own), list_or_note(job, shared), list_or_note(pod, own)
    )
    children.jobs = newest_first(own_jobs + shared_jobs)
    if shared_jobs:
        # Pods of a shared Job have no label of a resource.
        job_names = ",".join(sorted(item["metadata"]["name"] for item in shared_jobs))
        pods += await list_or_note(pod, f"{POD_JOB} in ({job_names})")
    children.pods = newest_first(pods)
    children.notes = sorted(set(children.notes))
    return children


async def _read_progress(cluster: Cluster, children: Children, job: Json) -> None:
    """Add the last progress that the newest pod of a running Job has logged."""
    name = job["metadata"]["name"]
    pods = [p for p in children.pods if p["metadata"].get("labels", {}).get(POD_JOB) == name]
    if job_state(job) != "Running" or not pods or pods[0]["status"].get("phase") != "Running":
        return
    meta = pods[0]["metadata"]
    try:
        progress = last_progress(
            await cluster.log(meta["namespace"], meta["name"], PROGRESS_LINES)
        )
    except Missing:
        return  # the pod was deleted since
    except ClusterError as error:
        children.notes.append(f"the progress of Job {name} cannot be read: {error}")
        return
    if progress is not None:
        children.progress[name] = progress


async def read(cluster: Cluster, namespace: str, name: str) -> Json:
    """Everything about one resource, as `specdec status NAME --json` prints it.

    Raises:
        ClusterError: the API server does not respond, or the caller may not read the resource.
        BadRequestError: there is no such resource.
    """
    body = await session.resource(cluster, namespace, name)
    children = await read_children(cluster, namespace, name)
    progress = children.progress
    return {
        **summary(body),
        "jobs": [_job(item, progress.get(item["metadata"]["name"])) for item in children.jobs],
        "pods": [_pod(item) for item in children.pods if not _has_ended(item)],
        "notes": children.notes,
    }


async def read_all(cluster: Cluster, namespace: str | None) -> list[Json]:
    """A summary of every resource in a namespace, or in all; raises as `read`."""
    return [summary(body) for body in await session.resources(cluster, namespace)]


def summary(body: Json) -> Json:
    """A resource by its metadata, spec and status, without its children."""
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
        "desiredReplicas": serving.get("replicas", 1),
        **{key: status[key] for key in _STATUS_FIELDS if key in status},
    }


def _job(job: Json, progress: Progress | None) -> Json:
    meta, status = job["metadata"], job.get("status", {})
    deleting = meta.get("deletionTimestamp")
    entry: Json = {
        "name": meta["name"],
        "component": meta.get("labels", {}).get(names.COMPONENT, ""),
        "state": "Deleting" if deleting else job_state(job),
        "createdAt": meta["creationTimestamp"],
        "failures": status.get("failed", 0),
    }
    if "completionTime" in status:
        entry["completedAt"] = status["completionTime"]
    if progress is None:
        return entry
    return {**entry, "phase": progress.phase, "percent": progress.percent}


def _pod(pod: Json) -> Json:
    meta, status = pod["metadata"], pod.get("status", {})
    return {
        "name": meta["name"],
        "component": meta.get("labels", {}).get(names.COMPONENT, ""),
        "phase": "Terminating" if meta.get("deletionTimestamp") else status.get("phase", ""),
        "ready": pod_ready(pod),
        "restarts": sum(item.get("restartCount", 0) for item in containers.statuses(pod)),
        "node": pod.get("spec", {}).get("nodeName", ""),
        "createdAt": meta["creationTimestamp"],
        "trouble": pod_problem(pod),
    }


def pod_problem(pod: Json) -> str:
    """Why a pod does not run, by the scheduler or the kubelet; empty if it runs."""
    cause = blocked(pod)
    if cause is not None:
        return f"{cause.reason}: {cause.message}"
    for status in containers.statuses(pod):
        waiting = status.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def _has_ended(pod: Json) -> bool:
    """Whether a pod has ended; its Job then shows the result."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def newest_first(objects: list[Json]) -> list[Json]:
    """Distinct objects, the newest first."""
    distinct = {item["metadata"]["uid"]: item for item in objects}.values()
    return sorted(
        distinct,
        key=lambda item: (str(item["metadata"]["creationTimestamp"]), item["metadata"]["name"]),
        reverse=True,
    )
