"""Available: whether the pods of a Deployment or a LeaderWorkerSet serve the desired revision."""

from collections.abc import Sequence
from dataclasses import dataclass

from specdec import servers
from specdec.api import names
from specdec.api.cause import Cause
from specdec.api.conditions import FAILED, Condition, Type
from specdec.api.reasons import AvailableReason, ReadyReason, Reason
from specdec.desired.serving import CONTAINER, Revision
from specdec.pipeline.observed import Object, pod_ready, server_log_key
from specdec.pipeline.pods import containers, damage, diagnosis, endpoints
from specdec.pipeline.stage import Context

# The reasons of a service whose spec asks for no pods.
_NO_PODS = (ReadyReason.SUSPENDED, AvailableReason.NOT_DEPLOYED)


@dataclass(frozen=True)
class Served:
    """What a live Deployment or LeaderWorkerSet serves.

    `repository` is a hash. `certificate` is the fingerprint of the renewed certificate files for
    which the pods were last replaced; empty if they never were.
    """

    repository: str
    image: str
    certificate: str = ""


@dataclass(frozen=True)
class Server:
    """A Deployment or LeaderWorkerSet to judge.

    Attributes:
        title: its kind and name, as in "Deployment pair".
        role: the role whose Service leads to it.
        served: what it serves; None where it does not exist.
        pods: its pods that are not being deleted, newest first.
        complete: whether enough pods are ready and none of another revision is left.
        ready: how many of its replicas are ready.
        unit: what a replica is, as in "pods" or "groups".
        detail: more about the unit, as in " of the draft" or " of 2 pods".
        problem: why its rollout is stuck; None if it is not.
    """

    title: str
    role: str
    served: Served | None
    pods: Sequence[Object] = ()
    complete: bool = False
    ready: int = 0
    unit: str = "pods"
    detail: str = ""
    problem: Cause | None = None


def served(live: Object, template: Object) -> Served:
    """What a live object serves, by its annotation and its pod template."""
    containers = {item["name"]: item for item in template["spec"]["containers"]}
    return Served(
        live["metadata"].get("annotations", {}).get(names.REPOSITORY, ""),
        containers.get(CONTAINER, {}).get("image", ""),
        template["metadata"].get("annotations", {}).get(names.CERTIFICATE, ""),
    )


def without_pods(context: Context) -> Condition | None:
    """The condition of a service whose spec asks for no pods; None where it asks for some."""
    model, left = context.model, context.observed.workload_pods()
    if model.spec.suspend and left:
        listed = ", ".join(sorted(pod["metadata"]["name"] for pod in left))
        message = f"spec.suspend is true, and these pods have not ended yet: {listed}"
        return _unavailable(AvailableReason.STOPPING, message)
    if model.spec.suspend:
        return _unavailable(ReadyReason.SUSPENDED, "no pods while spec.suspend is true")
    if model.spec.serving.replicas == 0:
        return _unavailable(
            AvailableReason.NOT_DEPLOYED, "spec.serving.replicas is 0: raise it to serve"
        )
    return None


def judge(context: Context, server: Server, desired: Revision | None) -> Condition:
    """Whether a server serves; `desired` is None while an earlier stage is not done."""
    live = server.served
    if live is None:
        return _unavailable(AvailableReason.STARTING, f"{server.title} is being created")
    if desired and (live.repository, live.image) != (desired.repository, desired.image):
        repository = desired.repository[:16]
        message = f"{server.title} is being updated to repository {repository}"
        return _unavailable(AvailableReason.STARTING, message)
    total = context.model.replicas(server.role)
    counts = f"{server.ready} of {total} {server.unit}"
    if not server.complete:
        cause = _cause(context, server, live)
        rest = f"{counts} serve requests{_revisions(server, live)}"
        return _unavailable(
            cause.reason, f"{cause.message}; {rest if server.ready else 'no pod is ready yet'}"
        )
    message = f"{counts}{server.detail} ready with repository {live.repository[:16]}"
    if server.ready < total:
        message += f"; {_cause(context, server, live).message}"
    available = Condition(Type.AVAILABLE, "True", AvailableReason.PODS_READY, message)
    return endpoints.check(context, server.role, available)


def worst(conditions: Sequence[Condition]) -> Condition:
    """The condition of several servers: the worst one, or if all serve, one with all messages."""
    first = min(conditions, key=_severity)
    if first.status != "True" or len(conditions) == 1:
        return first
    message = "; ".join(condition.message for condition in conditions)
    return Condition(first.type, "True", first.reason, message)


def is_final(condition: Condition) -> bool:
    """Whether the condition stays as it is until the resource or a pod changes."""
    return condition.status == "True" or condition.reason in _NO_PODS


def of_revision(pod: Object, repository: str) -> bool:
    """Whether a pod serves a repository (hash)."""
    label = pod["metadata"].get("labels", {}).get(names.REPOSITORY)
    return bool(label == repository[:16])


def _revisions(server: Server, live: Served) -> str:
    """The end of a sentence: which revisions the ready pods serve; empty if only the new one."""
    new = {of_revision(pod, live.repository) for pod in server.pods if pod_ready(pod)}
    if new == {False}:
        return " with the previous revision"
    return ", some of them with the previous revision" if False in new else ""


def _cause(context: Context, server: Server, live: Served) -> Cause:
    """The first reason for which a pod of the live revision is not ready."""
    budget = context.model.spec.serving.probes.startup_budget_seconds
    lines = servers.of(context.model).serving.log
    pods = [pod for pod in server.pods if of_revision(pod, live.repository)]
    for pod in pods:
        log = context.observed.crashes.get(pod["metadata"]["name"], "")
        probe = context.observed.probes.get(pod["metadata"]["name"], "")
        cause = damage.reported(context, pod) or diagnosis.blocked(pod)
        cause = (
            cause
            # First, because `crashed` also reports the end of an earlier run.
            or _silent(pod, probe)
            or diagnosis.crashed(pod, lines, budget, log, probe)
            or _blocking_sidecar(pod)
        )
        if cause:
            return cause
    if server.problem:
        return server.problem
    loading = sorted(pod["metadata"]["name"] for pod in pods if not pod_ready(pod))
    if loading:
        verb = "loads its" if len(loading) == 1 else "load their"
        steps = _steps(context, pods)
        return Cause(AvailableReason.STARTING, f"{', '.join(loading)} {verb} models{steps}")
    return Cause(AvailableReason.STARTING, f"{server.title} starts its pods")


def _steps(context: Context, pods: Sequence[Object]) -> str:
    """The end of a sentence: the steps of the start that the logs of loading pods show."""
    lines, logs = servers.of(context.model).serving.log, context.observed.logs
    steps = [lines.step(logs.get(server_log_key(pod), "")) for pod in pods if not pod_ready(pod)]
    known = ", ".join(dict.fromkeys(filter(None, steps)))
    return f": {known}" if known else ""


def _silent(pod: Object, probe: str) -> Cause | None:
    """Why a running pod is no longer ready; None if it is ready, or never was.

    `probe` is the kubelet's last event about a failed probe; empty if it could not be read.
    """
    name = pod["metadata"]["name"]
    why = f"kubectl describe pod {name} shows why"
    if probe.startswith(diagnosis.READINESS):
        why = " ".join(probe.removeprefix(diagnosis.READINESS).split())
    for status in pod.get("status", {}).get("containerStatuses", []):
        run = status.get("state", {}).get("running", {})
        if status.get("started") and not status.get("ready") and diagnosis.was_ready(pod, run):
            return Cause(
                AvailableReason.NOT_ANSWERING,
                f"pod {name} was ready and fails its readiness probe now: {why}",
            )
    return None


def _blocking_sidecar(pod: Object) -> Cause | None:
    """Which sidecar keeps a pod from being ready; None while the server runs and loads."""
    name = pod["metadata"]["name"]
    loading = any(
        "running" in status.get("state", {}) and not status.get("ready")
        for status in pod.get("status", {}).get("containerStatuses", [])
    )
    for status in containers.init_statuses(pod):
        if loading or status.get("ready") or "running" not in status.get("state", {}):
            continue
        probe = (
            "readiness probe fails"
            if status.get("started")
            else "startup probe has not passed yet"
        )
        message = f"pod {name} waits for container {status['name']}, whose {probe}"
        return Cause(AvailableReason.STARTING, message)
    return None


def _severity(condition: Condition) -> int:
    """Sort key of a condition: failed servers first, then blocked, starting and serving ones."""
    if condition.status == "True":
        return 3
    if condition.reason in FAILED:
        return 0
    return 2 if condition.reason == AvailableReason.STARTING else 1


def _unavailable(reason: Reason, message: str) -> Condition:
    return Condition(Type.AVAILABLE, "False", reason, message)
