"""The snapshot of the cluster for one reconcile, and functions that read its plain objects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from specdec.api import names

Object = Mapping[str, Any]
# The label of a Job's pods.
POD_JOB = "batch.kubernetes.io/job-name"
# The number of lines at the end of a log that are read to find the last progress line.
PROGRESS_LINES = 40


@dataclass(frozen=True)
class Ref:
    """A reference to an object to delete."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True)
class Neighbours:
    """The objects of the namespace that show which directories of a claim are in use.

    `resources` are all SpeculativeModels, `workloads` all Deployments and LeaderWorkerSets of
    servers, `revisions` the repository labels of all their pods.
    """

    resources: tuple[Object, ...]
    workloads: tuple[Object, ...] = ()
    revisions: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Observed:
    """The actual objects around a resource; None or a missing key where one does not exist.

    Attributes:
        now: when the snapshot was taken.
        claim: the PersistentVolumeClaim of the volume.
        jobs: Jobs of the resource, and those it shares, by name.
        pods: pods of the servers and the Jobs.
        config_maps: ConfigMaps by name.
        deployments: Deployments by the role that they serve.
        services: Services by name.
        endpoints: the number of ready addresses of each Service.
        logs: the last lines of logs. The key is the pod's name for running build and fetch pods,
            and for the certificate sidecar of a server. For a server that is not ready, the
            function `server_log_key` returns it.
        refusals: why the API server refuses the pod of a Job, by the Job's name; only of Jobs
            without a pod, or whose pods all failed.
        probes: the kubelet's last event about a failed probe of a server that is not ready, by the
            name of its pod.
        crashes: the end of the log of each server that ended, by pod name.
        group: the LeaderWorkerSet.
        optional_objects: optional objects by kind and name.
        peer: the SpeculativeModel that gets a share of the route's requests.
        baseline: the SpeculativeModel that the benchmark compares with.
        neighbours: the objects of the namespace that may use the claim; None unless something is
            to be pruned.
        pruning: the name of a pod that deletes directories of the claim; empty without one.
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
    refusals: Mapping[str, str] = field(default_factory=dict)
    probes: Mapping[str, str] = field(default_factory=dict)
    crashes: Mapping[str, str] = field(default_factory=dict)
    group: Object | None = None
    optional_objects: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    peer: Object | None = None
    baseline: Object | None = None
    neighbours: Neighbours | None = None
    pruning: str = ""

    def pods_of(self, job: str) -> list[Object]:
        """The pods of a Job, newest first."""
        return self._pods(POD_JOB, job)

    def serving_pods(self, role: str = "target") -> list[Object]:
        """The pods of a role's server, newest first."""
        return self._pods(names.COMPONENT, names.SERVERS[role])

    def workload_pods(self) -> list[Object]:
        """The pods of all servers and of the workers of groups, also those that are ending."""
        components = (*names.SERVERS.values(), names.WORKER)
        return [
            pod
            for pod in self.pods
            if pod["metadata"].get("labels", {}).get(names.COMPONENT) in components
            and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def _pods(self, label: str, value: str) -> list[Object]:
        pods = [p for p in self.pods if p["metadata"].get("labels", {}).get(label) == value]
        return sorted(pods, key=lambda p: str(p["metadata"]["creationTimestamp"]), reverse=True)


def all_failed(pods: Iterable[Object]) -> bool:
    """Whether no pod of a Job runs or has succeeded; true without pods."""
    return all(pod.get("status", {}).get("phase") == "Failed" for pod in pods)


def job_state(job: Object | None) -> Literal["Absent", "Running", "Complete", "Failed"]:
    """The state of a Job, by its conditions."""
    if job is None:
        return "Absent"
    condition = job_condition(job)
    if not condition:
        return "Running"
    return "Complete" if condition["type"] == "Complete" else "Failed"


def job_condition(job: Object) -> Object:
    """The condition that ended a Job; empty while it runs."""
    return next(
        (
            condition
            for condition in job.get("status", {}).get("conditions", [])
            if condition["status"] == "True" and condition["type"] in ("Complete", "Failed")
        ),
        {},
    )


def server_log_key(pod: Object) -> str:
    """The key of a server's log lines in `Observed.logs`."""
    return f"{pod['metadata']['name']}/server"


def pod_ready(pod: Object) -> bool:
    """Whether a pod's condition Ready is True."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def termination_message(pod: Object) -> str:
    """The last termination message of the first container that has one, or an empty string.

    Init containers come after the others.
    """
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
