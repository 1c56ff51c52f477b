"""The cause of a pod's or a Job's state: a reason, and a message with the next step."""

import re
import signal
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from specdec.api import names
from specdec.api.cause import Cause
from specdec.api.conditions import PROBLEMS
from specdec.api.reasons import (
    AvailableReason,
    CommonReason,
    EngineReason,
    Reason,
    StorageReason,
    parse,
)
from specdec.desired.pod import GPU
from specdec.pipeline.job_results import result
from specdec.pipeline.observed import Object, termination_message
from specdec.pipeline.pods import containers, server_log
from specdec.triton.log_lines import LogLines

# How many characters from the end of a container's message a condition quotes.
MOST_CHARACTERS = 600
_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_PROGRESS = re.compile(r"^progress phase=([a-z]{1,20}) percent=(\d{1,3})\b", re.MULTILINE)
# The scheduler's message about a pod whose claim is missing.
_NO_CLAIM = re.compile(r'\bpersistentvolumeclaim "([^"]+)" not found')
_SECRET = re.compile(r"\bsecret\b", re.IGNORECASE)
# A busy kubelet reports this before it has read the Secret or ConfigMap, and tries again.
_UNSYNCED = re.compile(r"^failed to sync (secret|configmap) cache\b")

# What a Job's event has before the reason. The name of the pod differs in each attempt.
_REFUSAL = re.compile(
    r"^(?:\(combined from similar events\): ?)?(?:Error creating: )?"
    r"(?:pods \"[^\"]*\" is forbidden: )?"
)

# How the kubelet's events about failed probes begin.
_LIVENESS, READINESS = "Liveness probe failed: ", "Readiness probe failed: "
# A shell's and a container's exit code after a signal is this number and that of the signal.
_SIGNALLED = 128

# The remedy for a Job that exceeds its deadline, by its component.
_DEADLINES = {
    "fetch": "raise spec.fetch.activeDeadlineSeconds",
    "publish": "check the volume, which is slow or does not respond",
    "prune": "check the volume, which is slow or does not respond",
    "verify": "raise spec.verification.timeoutSeconds",
    "benchmark": "raise spec.benchmark.timeoutSeconds",
}


@dataclass(frozen=True)
class Progress:
    """The progress that a Job's program logs: its phase, and how much of it is done (0 to 100)."""

    phase: str
    percent: int


def last_progress(log: str) -> Progress | None:
    """The last progress line of a log."""
    lines = _PROGRESS.findall(log)
    return Progress(lines[-1][0], min(int(lines[-1][1]), 100)) if lines else None


def blocked(pod: Object) -> Cause | None:
    """Why a pod cannot start, as the scheduler or the kubelet reports it; None if it can."""
    name = pod["metadata"]["name"]
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            why = _sentence(condition.get("message", "no node fits"))
            if claim := _NO_CLAIM.search(why):
                return Cause(
                    StorageReason.CLAIM_NOT_FOUND,
                    f"pod {name} needs claim {claim[1]}, which does not exist in its namespace: "
                    "create it, or correct the claimName that names it; the pod then continues",
                )
            return Cause(
                CommonReason.UNSCHEDULABLE,
                f"pod {name} cannot be scheduled: {why}{_gpu_product(pod, why)}",
            )
    for status in containers.statuses(pod):
        waiting = status.get("state", {}).get("waiting", {})
        reason, why = waiting.get("reason", ""), _sentence(waiting.get("message", ""))
        if reason in _PULL:
            return Cause(
                CommonReason.IMAGE_PULL_FAILED,
                f"image {status.get('image', '')} of pod {name} cannot be pulled ({reason}: "
                f"{why}): correct the image's name or its pull secret",
            )
        if _UNSYNCED.match(why):
            continue
        if reason in _CONFIG and _SECRET.search(why):
            return Cause(
                CommonReason.SECRET_MISSING,
                f"pod {name} waits for a Secret: {why}: create it with that key, or correct its "
                "name in the resource",
            )
        if reason in _CONFIG:
            return Cause(
                CommonReason.CONTAINER_CONFIG_ERROR, f"pod {name} cannot start ({reason}): {why}"
            )
    return None


def refused(name: str, note: str) -> Cause:
    """Why a Job has no pod, or no other after failed ones; `note` is from an event of the Job."""
    why = _sentence(_REFUSAL.sub("", note))
    return Cause(
        CommonReason.POD_REJECTED,
        f"the API server rejects the pod of Job {name}: {why}: change that quota, limit or "
        f"policy, or the Job's resources; to try again at once: kubectl delete job {name}",
    )


def running(name: str, activity: str, reason: Reason, pods: list[Object], log: str = "") -> Cause:
    """The state of an unfinished Job: what blocks its pod, its last failure, or its progress.

    `log` is the end of the newest pod's log.
    """
    if not pods:
        return Cause(CommonReason.QUEUED, f"Job {name} waits for its pod")
    pod = pods[0]
    if cause := blocked(pod):
        return Cause(cause.reason, f"Job {name}: {cause.message}")
    phase = pod.get("status", {}).get("phase", "Pending")
    node = pod.get("spec", {}).get("nodeName", "")
    if phase == "Failed":
        failure = _failure(pods, reason)
        return Cause(failure.reason, f"Job {name} tries again after a failure: {failure.message}")
    if phase == "Pending":
        return Cause(
            CommonReason.QUEUED,
            f"pod {pod['metadata']['name']} of Job {name} starts" + _on_node(node),
        )
    since = pod.get("status", {}).get("startTime")
    progress = last_progress(log)
    return Cause(
        reason,
        f"Job {name} {activity}"
        + _on_node(node)
        + (f" since {since}" if since else "")
        + (f": {progress.phase} {progress.percent} %" if progress else ""),
    )


def failed(name: str, job: Object, pods: list[Object], reason: Reason) -> Cause:
    """Why a Job failed, and how to run it again; `reason` is used if the Job reported none."""
    deadline = job.get("spec", {}).get("activeDeadlineSeconds")
    conditions = job.get("status", {}).get("conditions", [])
    if any(c.get("reason") == "DeadlineExceeded" for c in conditions):
        component = job["metadata"].get("labels", {}).get(names.COMPONENT)
        remedy = _DEADLINES.get(component, "raise spec.build.activeDeadlineSeconds")
        cause = Cause(
            EngineReason.DEADLINE_EXCEEDED, f"ran longer than {deadline} seconds: {remedy}"
        )
    else:
        cause = _failure(pods, reason)
    again = f"; to try again: kubectl delete job {name}"
    return Cause(cause.reason, f"Job {name} failed: {_sentence(cause.message)}{again}")


def unreadable(name: str, problem: str) -> Cause:
    """The cause of a complete Job with an invalid result; `problem` is from `Result.problem`."""
    return Cause(
        CommonReason.INVALID_RESULT,
        f"Job {name} reported a result that cannot be read ({problem}): use the image of this "
        f"release; to try again: kubectl delete job {name}",
    )


def crashed(
    pod: Object, lines: LogLines, startup_budget: int, log: str = "", probe: str = ""
) -> Cause | None:
    """Why a serving pod ended; None while it starts for the first time.

    `log` is the log of the run that ended, where it could be read, and `lines` are its lines that
    name a cause. `probe` is the last event of
    the kubelet about a failed probe of the pod.
    """
    name = pod["metadata"]["name"]
    for status in containers.statuses(pod):
        if status.get("ready"):
            continue
        states = (status.get("state", {}), status.get("lastState", {}))
        end = next((s["terminated"] for s in states if "terminated" in s), None)
        if end is None:
            continue
        count = status.get("restartCount", 0)
        secondary, text = containers.secondary(status), end.get("message", "")
        title = f"container {secondary} of pod {name}" if secondary else f"pod {name}"
        known = text if status in containers.init_statuses(pod) else log or text
        last = server_log.summary(known, lines) or _tail(server_log.clean(text, lines))
        message = f"{last} ({_exit(end)})" if last else _exit(end)
        if not secondary and probe.startswith(_LIVENESS):
            message += f"; its liveness probe failed: {_sentence(probe.removeprefix(_LIVENESS))}"
        if end.get("reason") == "OOMKilled":
            why = containers.out_of_memory(pod, status)
            return Cause(EngineReason.OUT_OF_MEMORY, f"{title}: {why}")
        if not secondary and _seconds(end) >= startup_budget and not was_ready(pod, end):
            return Cause(
                AvailableReason.STARTUP_TIMEOUT,
                f"pod {name} was not ready within {startup_budget} seconds "
                f"(spec.serving.probes.startupBudgetSeconds), {count} restarts; last message: "
                f"{message}",
            )
        return Cause(
            AvailableReason.CRASH_LOOP,
            f"{title} restarted {count} times; last message: {message}",
        )
    return None


def stuck_rollout(deployment: Object) -> Cause | None:
    """Why the rollout of a Deployment is stuck; None if it is not."""
    name = deployment["metadata"]["name"]
    if deployment["spec"].get("paused"):
        resume = f"kubectl rollout resume deployment {name}"
        return Cause(AvailableReason.ROLLOUT_STUCK, f"Deployment {name} is paused: {resume}")
    for condition in deployment.get("status", {}).get("conditions", []):
        failing = condition["type"] == "ReplicaFailure" and condition["status"] == "True"
        halted = condition["type"] == "Progressing" and condition["status"] == "False"
        if failing or halted:
            problem = "cannot create its pods" if failing else "makes no progress"
            why = _sentence(condition.get("message", ""))
            message = f"Deployment {name} {problem} ({condition.get('reason', '')}: {why})"
            return Cause(AvailableReason.ROLLOUT_STUCK, message)
    return None


def ended_while_loading(pod: Object, startup_budget: int) -> datetime | None:
    """When a pod's server last ended by itself, before it was ready and within its budget."""
    for status in containers.statuses(pod):
        states = (status.get("state", {}), status.get("lastState", {}))
        end = next((s["terminated"] for s in states if "terminated" in s), None)
        if end is None or status.get("ready") or end.get("reason") == "OOMKilled":
            continue
        other = (
            containers.secondary(status) or _seconds(end) >= startup_budget or was_ready(pod, end)
        )
        if end.get("finishedAt") and not other:
            return datetime.fromisoformat(end["finishedAt"])
    return None


def was_ready(pod: Object, run: dict[str, Any]) -> bool:
    """Whether a pod that is not ready was ready during a run of its container."""
    conditions = pod.get("status", {}).get("conditions", [])
    changed = [c.get("lastTransitionTime") for c in conditions if c["type"] == "Ready"]
    # Both are RFC 3339 in UTC with whole seconds: text order is time order.
    return bool(changed and changed[0]) and str(changed[0]) > str(run.get("startedAt") or "")


def _failure(pods: list[Object], reason: Reason) -> Cause:
    for pod in pods[:1]:
        for status in containers.statuses(pod):
            end = status.get("state", {}).get("terminated", {})
            if end.get("reason") == "OOMKilled":
                return Cause(EngineReason.OUT_OF_MEMORY, containers.out_of_memory(pod, status))
    error = result(pods[:1]).error
    if error is not None:
        # The program may run in a user's image and report any reason. Conditions have only
        # documented ones.
        known = parse(error.reason)
        return Cause(known if known in PROBLEMS else reason, _tail(error.message))
    message = _tail(termination_message(pods[0])) if pods else ""
    return Cause(reason, f"last message: {message}" if message else "its pod reported no message")


def _gpu_product(pod: Object, why: str) -> str:
    """The GPU product that an unschedulable pod needs: an engine runs on no other product.

    The scheduler counts GPUs only on nodes that have the label.
    """
    product = pod.get("spec", {}).get("nodeSelector", {}).get(names.GPU_PRODUCT)
    if product is None:
        return ""
    label = f"; it asks for a node whose label {names.GPU_PRODUCT} is {product}"
    if f"Insufficient {GPU}" in why:
        return f"{label}: free GPUs of such a node, or add one"
    if "didn't match" in why:
        return (
            f"{label}, and no node that it may use has it: correct gpu.product in the resource, "
            f"or add such a node; the labels are in: kubectl get nodes -L {names.GPU_PRODUCT}"
        )
    return label


def _exit(end: dict[str, Any]) -> str:
    """The exit code of a terminated container, and the signal that ended it."""
    code = end.get("exitCode")
    number = end.get("signal") or (code - _SIGNALLED if isinstance(code, int) else 0)
    try:
        return f"exit code {code}, {signal.Signals(number).name}"
    except ValueError:
        return f"exit code {code}"


def _seconds(end: dict[str, Any]) -> float:
    """How long a terminated container ran."""
    try:
        start = datetime.fromisoformat(end["startedAt"])
        return (datetime.fromisoformat(end["finishedAt"]) - start).total_seconds()
    except (KeyError, TypeError, ValueError):  # the kubelet leaves nulls where it missed the end
        return 0.0


def _tail(text: str) -> str:
    """The end of a text on one line: a program's last lines matter most."""
    flat = " ".join(text.split())
    return flat if len(flat) <= MOST_CHARACTERS else "…" + flat[-MOST_CHARACTERS:]


def _sentence(text: str) -> str:
    return _tail(text).rstrip(".;")


def _on_node(node: str) -> str:
    return f" on node {node}" if node else ""
