"""Snapshot of everything read for one reconcile, with small predicates over plain API objects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from specdec.api import names

Object = Mapping[str, Any]
# The label by which a Job's pods are found.
POD_JOB = "batch.kubernetes.io/job-name"
# So many last lines of a log surely hold its last progress line.
PROGRESS_LINES = 40


@dataclass(frozen=True)
class Ref:
    """Which object to delete."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True)
class Observed:
    """What the API server said, live; `None` or absent means it does not exist.

    `deployments` is by the role whose server it is, `extras` by kind and name, every other mapping
    by name.
    `endpoints` says of each live Service how many addresses behind it are ready.
    `crashes` has the end of the log of each server that ended, by pod name.
    `logs` holds the last lines of running build and fetch pods, by pod name, and of servers that
    are not ready yet, by `server_log`; `peer` is the SpeculativeModel that the route's split
    names.
    """

    now: datetime
    claim: Object | None = None
    jobs: Mapping[str, Object] = field(default_factory=dict)
    pods: tuple[Object, ...] = ()
    config_maps: Mapping[str, Object] = field(default_factory=dict)
    deployments: Mapping[str, Object] = field(default_factory=dict)
    services: Mapping[str, Object] = field(default_factory=dict)
    endpoints: Mapping[str, int] = field(default_factory=dict)
    logs: Mapping[str, str] = field(default_factory=dict)
    crashes: Mapping[str, str] = field(default_factory=dict)
    group: Object | None = None
    extras: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    peer: Object | None = None

    def pods_of(self, job: str) -> list[Object]:
        """The pods of one Job, newest first."""
        mine = [p for p in self.pods if p["metadata"].get("labels", {}).get(POD_JOB) == job]
        return sorted(mine, key=lambda p: str(p["metadata"]["creationTimestamp"]), reverse=True)

    def serving_pods(self, role: str = "target") -> list[Object]:
        """The pods of a server's Deployment, newest first."""
        component = names.SERVERS[role]
        mine = [
            p
            for p in self.pods
            if p["metadata"].get("labels", {}).get(names.COMPONENT) == component
        ]
        return sorted(mine, key=lambda p: str(p["metadata"]["creationTimestamp"]), reverse=True)


def job_state(job: Object | None) -> Literal["Absent", "Running", "Complete", "Failed"]:
    """Where a Job stands, by its conditions."""
    if job is None:
        return "Absent"
    for condition in job.get("status", {}).get("conditions", []):
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            return "Complete" if condition["type"] == "Complete" else "Failed"
    return "Running"


def server_log(pod: Object) -> str:
    """By what `Observed.logs` has the last lines of a pod's server."""
    return f"{pod['metadata']['name']}/server"


def pod_ready(pod: Object) -> bool:
    """Whether a pod answers, by its own word."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def last_words(pod: Object) -> str:
    """The newest termination message of a pod's containers, or an empty string."""
    statuses = [
        *pod.get("status", {}).get("containerStatuses", []),
        *pod.get("status", {}).get("initContainerStatuses", []),
    ]
    for status in statuses:
        for state in (status.get("state", {}), status.get("lastState", {})):
            message = state.get("terminated", {}).get("message", "")
            if message:
                return str(message)
    return ""
