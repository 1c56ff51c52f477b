"""Run a Job for a person: create it, wait for its end, and state why it failed."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from specdec.api.reasons import CommonReason
from specdec.client.errors import RefusedError
from specdec.cluster import Cluster, Rejected
from specdec.cluster.events import time_of
from specdec.pipeline.observed import POD_JOB, job_state, termination_message
from specdec.pipeline.pods import diagnosis
from specdec.tools.inspect.status import newest_first

Json = dict[str, Any]


async def run(
    cluster: Cluster,
    body: Mapping[str, Any],
    interval: float,
    report: Callable[[str], None] | None = None,
) -> list[Json]:
    """Create a Job, unless it exists, and wait for it; returns its pods, newest first.

    Args:
        cluster: logged in as the person.
        body: the Job.
        interval: seconds between two reads.
        report: called with what the Job waits for or does, whenever that changes.

    Raises:
        RefusedError: the Job failed (the error has its message), or was deleted.
        ClusterError: the API server refused a request.
    """
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    await cluster.create(body)
    last = ""
    while True:
        job = await cluster.get("batch/v1", "Job", namespace, name)
        if job is None:
            raise RefusedError(f"Job {name} was deleted before it ended")
        if (state := job_state(job)) in ("Complete", "Failed"):
            break
        if report is not None and (message := await _progress(cluster, namespace, name)) != last:
            last = message
            report(message)
        await asyncio.sleep(interval)
    pods = newest_first(await cluster.list("v1", "Pod", namespace, f"{POD_JOB}={name}"))
    if state == "Failed" or not result(pods):
        raise RefusedError(f"Job {name} failed: {_failure(pods)}")
    return pods


async def _progress(cluster: Cluster, namespace: str, name: str) -> str:
    """What an unfinished Job waits for or does, for people."""
    pods = newest_first(await cluster.list("v1", "Pod", namespace, f"{POD_JOB}={name}"))
    message = diagnosis.running(name, "runs", CommonReason.QUEUED, [*pods]).message
    if not pods:
        return _with(message, await _warning(cluster, namespace, name))
    if diagnosis.blocked(pods[0]):
        return message
    if pods[0].get("status", {}).get("phase", "Pending") != "Pending":
        return message
    return _with(message, await _warning(cluster, namespace, pods[0]["metadata"]["name"]))


def _with(message: str, warning: str) -> str:
    return f"{message}; {warning}" if warning else message


async def _warning(cluster: Cluster, namespace: str, name: str) -> str:
    """The newest warning event of a pod or a Job; empty without one or the right to read it."""
    events: list[Json] = []
    with contextlib.suppress(Rejected):
        events = await cluster.list("events.k8s.io/v1", "Event", namespace)
    own = [
        (time_of(event), f"{event.get('reason', '')}: {event.get('note', '')}")
        for event in events
        if event.get("type") == "Warning" and (event.get("regarding") or {}).get("name") == name
    ]
    return max(own, default=("", ""))[1]


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
