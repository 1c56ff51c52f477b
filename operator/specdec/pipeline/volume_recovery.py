"""Files that are missing from the volume or damaged, although the status remembers them.

The operator cannot read the volume. A server compares its files before it loads them: where they
are damaged it waits and reports them. A server may also end while it loads. In both cases the
publish Job runs again and reads every file that servers need. It restores the repository itself,
deletes what is damaged, and reports what is missing. The operator forgets that, and so it is
fetched or built again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from specdec.api import names
from specdec.api.cause import Cause
from specdec.api.reasons import Reason, RepositoryReason, parse
from specdec.pipeline import damage, diagnosis, job
from specdec.pipeline.job_results import result
from specdec.pipeline.observed import Object, Ref, pod_ready
from specdec.pipeline.stage import Context

# A server may end while it loads for other reasons, and the kubelet restarts it each time.
_AFTER_END = timedelta(minutes=30)
# A pod that waits names the damage. A container that started before the last check waits for it.
_AFTER_DAMAGE = timedelta(minutes=5)


@dataclass(frozen=True)
class Doubt:
    """Why the volume has to be checked again, and when that was decided (RFC 3339)."""

    cause: Cause
    at: str


@dataclass(frozen=True)
class Loss:
    """Files that publishing reported as missing or damaged.

    `jobs` are the publish and fetch Jobs to delete, `roles` the engines concerned (empty: all).
    """

    cause: Cause
    jobs: tuple[Ref, ...]
    roles: frozenset[str]

    def concerns(self, role: str) -> bool:
        """Whether the engine of a role may be lost."""
        return not self.roles or role in self.roles


def doubt(context: Context, revision: str) -> Doubt | None:
    """Whether pods of a published revision gave a reason for a check since the last one."""
    status, now = context.model.status.get("repository", {}), context.observed.now
    if status.get("hash") != revision or context.model.spec.suspend:
        return None
    text = status.get("checkedAt")
    checked = None if text is None else datetime.fromisoformat(text)
    pods = list(_pods(context, revision))
    cause = _damage(context, pods, checked)
    if cause is None and (checked is None or now - checked >= _AFTER_END):
        cause = _ended_while_loading(context, pods, checked)
    return None if cause is None else Doubt(cause, timestamp(context))


def _damage(context: Context, pods: list[Object], checked: datetime | None) -> Cause | None:
    """The damage that a pod waits for, unless the last check was about it a moment ago."""
    for pod in pods:
        cause, started = damage.reported(context, pod), damage.started_at(pod)
        due = checked is None or context.observed.now - checked >= _AFTER_DAMAGE
        later = started is not None and checked is not None and started > checked
        if cause is not None and (due or later):
            return cause
    return None


def _ended_while_loading(
    context: Context, pods: list[Object], checked: datetime | None
) -> Cause | None:
    """The first pod that ended while it loaded, later than the last check."""
    budget = context.model.spec.serving.probes.startup_budget_seconds
    for pod in pods:
        ended = diagnosis.ended_while_loading(pod, budget)
        if ended is not None and (checked is None or ended > checked):
            name = pod["metadata"]["name"]
            message = f"the volume is checked again: pod {name} ended while it loaded"
            return Cause(RepositoryReason.PUBLISHING, message)
    return None


def may_report_damage(context: Context, revision: str) -> bool:
    """Whether a pod of a revision still starts, though enough others may serve."""
    return any(
        pod.get("status", {}).get("phase") in ("Pending", "Running")
        and not pod["metadata"].get("deletionTimestamp")
        and not pod_ready(pod)
        for pod in _pods(context, revision)
    )


def timestamp(context: Context) -> str:
    """The time of this reconcile, in the format of the status."""
    return context.observed.now.isoformat(timespec="seconds")


def loss(context: Context, *reasons: Reason) -> Loss | None:
    """The loss that a publish Job reported with one of the reasons; None where none did."""
    for name, live in sorted(context.observed.jobs.items()):
        if not job.belongs(live, context.model) or live["metadata"].get("deletionTimestamp"):
            continue
        report = result(context.observed.pods_of(name))
        kind = parse(report.error.reason) if report.error else None
        if report.error is not None and kind in reasons:
            fetch = job.own(context.observed, context.model, "fetch")
            jobs = tuple(job.ref(n) for n in sorted({name, *fetch}))
            cause = Cause(kind, report.error.message[: diagnosis.MOST_CHARACTERS])
            return Loss(cause, jobs, frozenset(report.lost.root if report.lost else ()))
    return None


def _pods(context: Context, revision: str) -> Iterator[Object]:
    """The serving pods of a revision."""
    for pod in context.observed.pods:
        labels = pod["metadata"].get("labels", {})
        serves = labels.get(names.COMPONENT) in names.SERVERS.values()
        if serves and labels.get(names.REPOSITORY) == revision[:16]:
            yield pod
