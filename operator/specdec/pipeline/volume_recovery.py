"""What is missing from the volume, or damaged, although the status remembers it.

The operator does not see the volume. A server compares its files before it loads them, waits
where they are damaged and reports which; one that fails to load all the same ends. Either way the
publish Job, which compares the volume with what servers need, runs once more and reads every file.
It restores the repository itself, removes what is damaged and names what is missing: that is
forgotten, and so fetched or built again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from specdec.api import names
from specdec.api.cause import Cause
from specdec.pipeline import damage, diagnosis, job
from specdec.pipeline.job_results import result
from specdec.pipeline.observed import Object, Ref, pod_ready
from specdec.pipeline.stage import Context

# A server may end while it loads for other reasons too, as often as the kubelet tries.
_PAUSE = timedelta(minutes=30)
# One that waits names damage; only a container that started before the last check is asked twice.
_REPAIR = timedelta(minutes=5)


@dataclass(frozen=True)
class Doubt:
    """Why the volume is to be checked again, and when that was decided (RFC 3339)."""

    words: Cause
    at: str


@dataclass(frozen=True)
class Loss:
    """What publishing found missing or damaged.

    `jobs` are the publish and fetch Jobs to forget, `roles` whose engines it is; empty: anybody's.
    """

    words: Cause
    jobs: tuple[Ref, ...]
    roles: frozenset[str]

    def of(self, role: str) -> bool:
        """Whether the engine of a role may be lost."""
        return not self.roles or role in self.roles


def doubt(context: Context, revision: str) -> Doubt | None:
    """Whether a pod of a published revision waits for files, or ended while it loaded, since the
    last check."""
    status, now = context.model.status.get("repository", {}), context.observed.now
    if status.get("hash") != revision or context.model.spec.suspend:
        return None
    text = status.get("checkedAt")
    last = None if text is None else datetime.fromisoformat(text)
    pods = list(_servers(context, revision))
    words = _waiting(context, pods, last)
    if words is None and (last is None or now - last >= _PAUSE):
        words = _ended(context, pods, last)
    return None if words is None else Doubt(words, stamp(context))


def _waiting(context: Context, pods: list[Object], last: datetime | None) -> Cause | None:
    """What a server waits for, unless the last check has just been about it."""
    for pod in pods:
        words, since = damage.waits(context, pod), damage.since(pod)
        over = last is None or context.observed.now - last >= _REPAIR
        if words is not None and (
            over or (since is not None and last is not None and since > last)
        ):
            return words
    return None


def _ended(context: Context, pods: list[Object], last: datetime | None) -> Cause | None:
    """That a pod ended while it loaded, later than the last check."""
    budget = context.model.spec.serving.probes.startup_budget_seconds
    for pod in pods:
        end = diagnosis.ended_loading(pod, budget)
        if end is not None and (last is None or end > last):
            name = pod["metadata"]["name"]
            why = f"the volume is checked again: pod {name} ended while it loaded"
            return Cause("Publishing", why)
    return None


def starting(context: Context, revision: str) -> bool:
    """Whether a pod of a revision may yet report damage, though enough others serve."""
    return any(
        pod.get("status", {}).get("phase") in ("Pending", "Running")
        and not pod["metadata"].get("deletionTimestamp")
        and not pod_ready(pod)
        for pod in _servers(context, revision)
    )


def stamp(context: Context) -> str:
    """The present, as the status has it."""
    return context.observed.now.isoformat(timespec="seconds")


def missing(context: Context, *reasons: str) -> Loss | None:
    """What publishing found missing or damaged; None if nothing.

    Args:
        context: what was read.
        reasons: what the Job calls it.
    """
    for name, live in sorted(context.observed.jobs.items()):
        if not job.belongs(live, context.model) or live["metadata"].get("deletionTimestamp"):
            continue
        report = result(context.observed.pods_of(name))
        if report.error is not None and report.error.reason in reasons:
            fetch = job.own(context.observed, context.model, "fetch")
            jobs = tuple(job.ref(n) for n in sorted({name, *fetch}))
            words = Cause(report.error.reason, report.error.message[: diagnosis.TAIL])
            return Loss(words, jobs, frozenset(report.lost.root if report.lost else ()))
    return None


def _servers(context: Context, revision: str) -> Iterator[Object]:
    for pod in context.observed.pods:
        labels = pod["metadata"].get("labels", {})
        serves = labels.get(names.COMPONENT) in names.SERVERS.values()
        if serves and labels.get(names.REPOSITORY) == revision[:16]:
            yield pod
