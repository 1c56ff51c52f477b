"""Run a Job for a person: create it, wait for its end, and state why it failed."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from specdec.client.errors import RefusedError
from specdec.cluster import Cluster
from specdec.inspect.status import newest_first
from specdec.pipeline.observed import POD_JOB, job_state, termination_message

Json = dict[str, Any]


async def run(cluster: Cluster, body: Mapping[str, Any], interval: float) -> list[Json]:
    """Create a Job, unless it exists, and wait for it; returns its pods, newest first.

    Args:
        cluster: logged in as the person.
        body: the Job.
        interval: seconds between two reads.

    Raises:
        RefusedError: the Job failed, with its message, or was deleted.
        ClusterError: the API server refused a request.
    """
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    await cluster.create(body)
    while True:
        job = await cluster.get("batch/v1", "Job", namespace, name)
        if job is None:
            raise RefusedError(f"Job {name} was deleted before it ended")
        if (state := job_state(job)) in ("Complete", "Failed"):
            break
        await asyncio.sleep(interval)
    pods = newest_first(await cluster.list("v1", "Pod", namespace, f"{POD_JOB}={name}"))
    if state == "Failed" or not result(pods):
        raise RefusedError(f"Job {name} failed: {_failure(pods)}")
    return pods


def result(pods: list[Json]) -> Json:
    """What the newest pod left as its termination message; empty if that is no JSON object."""
    try:
        value = json.loads(_message(pods))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _failure(pods: list[Json]) -> str:
    error = result(pods).get("error", {})
    why = error.get("message") or _message(pods)[-300:] or "no message"
    return f"{error.get('reason', 'no result')}: {why}"


def _message(pods: list[Json]) -> str:
    return next((text for text in map(termination_message, pods) if text), "")
