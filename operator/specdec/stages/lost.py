"""What is gone from the volume although the status remembers it.

The operator does not see the volume. A server that finds no engine, tokenizer or repository ends
while it loads; then the publish Job, which holds the volume against what servers need, is run once
more. It puts the repository back by itself, and names what else is missing: that is forgotten, and
so fetched or built again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from specdec.api import names
from specdec.observed import Object, Ref, result
from specdec.stages import progress, work
from specdec.stages.stage import Context

# A server may end while it loads for other reasons too, as often as the kubelet tries.
_PAUSE = timedelta(minutes=30)


@dataclass(frozen=True)
class Doubt:
    """Why the volume is to be looked at again, and when that was decided (RFC 3339)."""

    words: str
    at: str


def doubt(context: Context, revision: str) -> Doubt | None:
    """Whether a pod of a published revision ended while it loaded, since the last look."""
    told, now = context.model.status.get("repository", {}), context.observed.now
    if told.get("hash") != revision or context.model.spec.suspend:
        return None
    last = told.get("checkedAt")
    if last is not None and now - datetime.fromisoformat(last) < _PAUSE:
        return None
    for pod in _servers(context, revision):
        end = progress.ended_loading(pod, context.model.spec.serving.probes.startup_budget_seconds)
        if end is not None and (last is None or end > datetime.fromisoformat(last)):
            name = pod["metadata"]["name"]
            return Doubt(f"pod {name} ended while it loaded", stamp(context))
    return None


def stamp(context: Context) -> str:
    """The present, as the status has it."""
    return context.observed.now.isoformat(timespec="seconds")


def missing(context: Context, reason: str) -> tuple[Ref, ...]:
    """Publish and fetch Jobs to forget when publishing found something gone; empty if not.

    Args:
        context: what was read.
        reason: what the Job calls it: CheckpointMissing or EngineMissing.
    """
    for name, job in sorted(context.observed.jobs.items()):
        if not work.belongs(job, context.model) or job["metadata"].get("deletionTimestamp"):
            continue
        error = result(context.observed.pods_of(name)).get("error", {})
        if isinstance(error, dict) and error.get("reason") == reason:
            fetch = work.of(context.observed, context.model, "fetch")
            return tuple(work.delete(n) for n in sorted({name, *fetch}))
    return ()


def _servers(context: Context, revision: str) -> Iterator[Object]:
    for pod in context.observed.pods:
        labels = pod["metadata"].get("labels", {})
        serves = labels.get(names.COMPONENT) in names.SERVERS.values()
        if serves and labels.get(names.REPOSITORY) == revision[:16]:
            yield pod
