"""Read the events that explain a state: why a Job has no pod, and why a probe fails.

`observe` calls `refusals` and `probes`. An event that cannot be read leaves no message.
"""

import asyncio
import logging
from collections import defaultdict
from typing import Any

from specdec.api import names
from specdec.cluster import Cluster, ClusterError
from specdec.desired.serving import CONTAINER
from specdec.pipeline.observed import POD_JOB, Object, all_failed, job_state

logger = logging.getLogger(__name__)

Json = dict[str, Any]


async def refusals(
    cluster: Cluster, namespace: str, jobs: list[Json], pods: list[Json]
) -> dict[str, str]:
    """Why an unfinished Job has no pod, or no other after its pods failed, by the Job's events."""
    of_job: dict[str, list[Json]] = defaultdict(list)
    for pod in pods:
        of_job[pod["metadata"].get("labels", {}).get(POD_JOB)].append(pod)
    waiting = {
        job["metadata"]["name"]: job
        for job in jobs
        if job_state(job) == "Running" and all_failed(of_job[job["metadata"]["name"]])
    }
    # An event before the newest pod is about an attempt that has succeeded since.
    since = {
        name: max((pod["metadata"]["creationTimestamp"] for pod in of_job[name]), default="")
        for name in waiting
    }
    notes = await asyncio.gather(
        *(
            _last_note(cluster, namespace, job, "FailedCreate", since[name])
            for name, job in waiting.items()
        )
    )
    return {name: note for name, note in zip(waiting, notes, strict=True) if note}


async def probes(cluster: Cluster, namespace: str, pods: list[Json]) -> dict[str, str]:
    """The last failed probe of each server that has started before and is not ready."""
    failing = {pod["metadata"]["name"]: pod for pod in pods if _has_failed(pod)}
    notes = await asyncio.gather(
        *(_last_note(cluster, namespace, pod, "Unhealthy") for pod in failing.values())
    )
    return {name: note for name, note in zip(failing, notes, strict=True) if note}


def _has_failed(pod: Object) -> bool:
    """Whether the server of a pod is not ready after it was started, or has ended."""
    component = pod["metadata"].get("labels", {}).get(names.COMPONENT)
    return component in names.SERVERS.values() and any(
        not status.get("ready") and (status.get("started") or "terminated" in status["lastState"])
        for status in pod.get("status", {}).get("containerStatuses", [])
        if status.get("name") == CONTAINER and "lastState" in status
    )


async def _last_note(
    cluster: Cluster, namespace: str, live: Object, reason: str, since: str = ""
) -> str:
    """The message of the last event about an object that has a reason; empty without one.

    Events before `since` (RFC 3339) do not count.
    """
    try:
        notes = await cluster.notes(namespace, live["metadata"]["uid"], reason, since)
    except ClusterError as error:
        # Like a log, it only explains a state.
        logger.debug("no events of %s: %s", live["metadata"]["name"], error)
        return ""
    return notes[-1] if notes else ""
