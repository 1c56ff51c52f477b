"""Files that are missing from the volume or damaged, although the status remembers them.

The operator cannot read the volume. A server compares its files before it loads them. If some are
damaged, it reports them and waits. A server may also end while it loads. In both cases the
operator runs the publish Job again, which reads every file that servers need. The Job restores the
repository itself, deletes damaged files, and reports what is missing. The operator removes the
missing engines and checkpoints from the status, so that earlier stages fetch or build them again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from specdec.api import names
from specdec.api.cause import Cause
from specdec.api.reasons import Reason, RepositoryReason, parse
from specdec.pipeline import job
from specdec.pipeline.job_results import result
from specdec.pipeline.observed import Object, Ref, pod_ready
from specdec.pipeline.pods import damage, diagnosis
from specdec.pipeline.stage import Context

# For this time after a check, a server that exits causes no further check. Servers also exit for
# other reasons while they load, and the kubelet restarts them each time.
_AFTER_END = timedelta(minutes=30)
# For this time after a check, a report of damage causes no further check if its container started
# before the check. Such a container waits for the repair that the check began.
_AFTER_DAMAGE = timedelta(minutes=5)


@dataclass(frozen=True)
class VolumeCheck:
    """A further check of the volume: its cause, and when it was decided (RFC 3339)."""

    cause: Cause
    at: str


@dataclass(frozen=True)
class Loss:
    """Files that publishing reported as missing or damaged.

    `roles` are the engines concerned (empty: all), `fetch` the fetch Jobs to delete. The publish
    Job `publish` is deleted last: without it, a restarted operator would not know the cause.
    """

    cause: Cause
    publish: Ref
    fetch: tuple[Ref, ...]
    roles: frozenset[str]

    def concerns(self, role: str) -> bool:
        """Whether the engine of a role may be lost."""
        return not self.roles or role in self.roles


def check_due(context: Context, revision: str) -> VolumeCheck | None:
    """The check that pods of a published revision require; None if the last check is enough."""
    status, now = context.model.status.get("repository", {}), context.observed.now
    if status.get("hash") != revision or context.model.spec.suspend:
        return None
    text = status.get("checkedAt")
    checked = None if text is None else datetime.fromisoformat(text)
    pods = list(_pods(context, revision))
    cause = _damage(context, pods, checked)
    if cause is None and (checked is None or now - checked >= _AFTER_END):
        cause = _ended_while_loading(context, pods, checked)
    return None if cause is None else VolumeCheck(cause, timestamp(context))


def _damage(context: Context, pods: list[Object], checked: datetime | None) -> Cause | None:
    """The damage that a pod reports, unless a recent check has begun to repair it."""
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
    """Whether a pod of a revision is still starting, even if enough others serve."""
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
            fetch = tuple(map(job.ref, job.own(context.observed, context.model, "fetch")))
            cause = Cause(kind, report.error.message[: diagnosis.MOST_CHARACTERS])
            roles = frozenset(report.lost.root if report.lost else ())
            return Loss(cause, job.ref(name), fetch, roles)
    return None


def _pods(context: Context, revision: str) -> Iterator[Object]:
    """The serving pods of a revision."""
    for pod in context.observed.pods:
        labels = pod["metadata"].get("labels", {})
        serves = labels.get(names.COMPONENT) in names.SERVERS.values()
        if serves and labels.get(names.REPOSITORY) == revision[:16]:
            yield pod
