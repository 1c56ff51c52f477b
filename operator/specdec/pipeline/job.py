"""The life of a stage's Job: absent, queued, running, ended, replaced, deleted, lost.

A stage describes its Job as a `Task`. `advance` compares the task with the live Job and returns
the result (`Done`), or what to do and to report until there is one (`Pending`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from specdec.api import names
from specdec.api.cause import Cause
from specdec.api.conditions import Type
from specdec.api.model import KIND, SpeculativeModel
from specdec.api.reasons import CommonReason, ReadyReason, Reason
from specdec.backends.facts import Facts
from specdec.pipeline.job_results import Section
from specdec.pipeline.live_job import LiveJob, State, being_deleted, find
from specdec.pipeline.observed import Object, Observed, Ref, all_failed
from specdec.pipeline.pods import diagnosis
from specdec.pipeline.stage import POLL, Context, Outcome, stopped

# Annotation with a hash of the Job's spec.
SPEC_HASH = "specdec.dev/shape"
# The components of Jobs that write checkpoints, engines and repositories.
FILLS_VOLUME = frozenset({"fetch", "engine", "publish"})

R = TypeVar("R")


@dataclass(frozen=True)
class Task(Generic[R]):
    """The Job that a stage needs done, and how the stage reports on it.

    Attributes:
        job: the desired Job.
        parse: the stage's result of a finished Job; None where the Job left none.
        sections: the sections of the Job's result that `parse` reads.
        running: the reason while it runs.
        failure: the reason of a failed Job that reports no reason.
        activity: what it does, as in "Job x fetches the target".
        purpose: what it is created for, as in "Job x is created to fetch the target".
        suspended: the message while `spec.suspend` is true.
        remembered: the result of an earlier Job, from the resource's status.
        waits_for: what the Job's creation waits for; empty if it waits for nothing.
        obstacle: why the Job cannot be created; reported once it waits for nothing.
        inputs: objects that the Job's pods mount.
        membership: the owner reference and label that add this resource to a Job that another
            resource created; None where Jobs are not shared.
        final: the states of a Job in which it may have a result.
    """

    job: Object
    parse: Callable[[LiveJob], R | None]
    sections: tuple[Section, ...]
    running: Reason
    failure: Reason
    activity: str
    purpose: str
    suspended: str
    remembered: R | None = None
    waits_for: str = ""
    obstacle: Cause | None = None
    inputs: tuple[Object, ...] = ()
    membership: Object | None = None
    final: tuple[State, ...] = ("Complete",)


@dataclass(frozen=True)
class Done(Generic[R]):
    """The Job's result is known: from the Job itself, or from the status."""

    result: R


@dataclass(frozen=True)
class Pending:
    """The Job has no result yet: why, and what to do about it.

    `failed` is true if there will be no result until a person deletes the Job.
    """

    cause: Cause
    apply: tuple[Object, ...] = ()
    delete: tuple[Ref, ...] = ()
    failed: bool = False
    log: str = ""
    requeue_after: float | None = POLL


def advance(context: Context, task: Task[R]) -> Done[R] | Pending:
    """The result of a stage's Job, or the next step towards it."""
    live = find(context.observed, task.job["metadata"]["name"])
    parsed = task.parse(live) if live.state in task.final else None
    known = task.remembered if parsed is None else parsed
    if task.remembered is None and _waits_for_prune(context, live, task.job):
        message = f"waits until pod {context.observed.pruning} has deleted unused directories"
        return Pending(Cause(CommonReason.WAITING, message))
    if known is not None:
        return Done(known)
    if context.model.spec.suspend:
        return Pending(Cause(ReadyReason.SUSPENDED, task.suspended), requeue_after=None)
    if _outdated(live, task.job, context.model):
        message = f"Job {live.name} is being replaced by one with the changed settings"
        return Pending(Cause(CommonReason.QUEUED, message), delete=(ref(live.name),))
    match live.state:
        case "Absent":
            return _absent(live, task)
        case "Deleting":
            return Pending(Cause(CommonReason.QUEUED, f"Job {live.name} is being deleted"))
        case "Ended":
            message = f"Job {live.name} has ended, and its result is read next"
            return Pending(Cause(task.running, message))
        case "Complete":
            return _complete(live, task)
        case "Running" | "Failed":
            return _running_or_failed(context, live, task)


def _waits_for_prune(context: Context, live: LiveJob, desired: Object) -> bool:
    """Whether a Job that fills the volume has to wait until a prune has ended.

    The prune might delete what a new Job would use again, or what a complete Job has written. So a
    new Job starts only after the prune, and the result of a complete Job counts only after it.
    """
    component = desired["metadata"].get("labels", {}).get(names.COMPONENT)
    starts = live.state not in ("Running", "Failed")
    return bool(context.observed.pruning) and starts and component in FILLS_VOLUME


def _absent(live: LiveJob, task: Task[R]) -> Pending:
    if task.waits_for:
        return Pending(
            Cause(CommonReason.WAITING, f"waits for {task.waits_for}"), requeue_after=None
        )
    if task.obstacle is not None:
        return Pending(task.obstacle, requeue_after=None)
    cause = Cause(CommonReason.QUEUED, f"Job {live.name} is created {task.purpose}")
    return Pending(cause, apply=(*task.inputs, task.job))


def _running_or_failed(context: Context, live: LiveJob, task: Task[R]) -> Pending:
    """A Job that runs or failed: apply its inputs again, and join the Job of another resource."""
    apply = task.inputs
    if task.membership is not None and not belongs(live.body, context.model):
        apply = (*apply, task.membership)
    if live.state == "Failed":
        cause = diagnosis.failed(live.name, live.body, live.pods, task.failure)
        return Pending(cause, apply, failed=True, requeue_after=None)
    if live.refusal and all_failed(live.pods):
        return Pending(diagnosis.refused(live.name, live.refusal), apply)
    cause = diagnosis.running(live.name, task.activity, task.running, live.pods, live.log)
    return Pending(cause, apply, log=live.log)


def _complete(live: LiveJob, task: Task[R]) -> Pending:
    """A complete Job without a result: its message is invalid, or its pod is missing."""
    if problem := live.result.problem(*task.sections):
        cause = diagnosis.unreadable(live.name, problem)
    elif not any(pod.get("status", {}).get("phase") == "Succeeded" for pod in live.pods):
        # Another run costs little: it keeps what is on the volume.
        message = f"Job {live.name} lost its result with its pod and runs again"
        return Pending(Cause(CommonReason.QUEUED, message), delete=(ref(live.name),))
    else:
        message = (
            f"Job {live.name} reported no result; to try again: kubectl delete job {live.name}"
        )
        cause = Cause(task.failure, message)
    return Pending(cause, failed=True, requeue_after=None)


def waiting(kind: Type, facts: Facts, step: Pending, delete: tuple[Ref, ...] = ()) -> Outcome:
    """The outcome of a stage whose Job has no result: the condition is False, the chain stops."""
    return stopped(
        kind, facts, step.cause, step.apply, (*delete, *step.delete), step.requeue_after
    )


def ref(name: str) -> Ref:
    """A reference to a Job, to delete it."""
    return Ref("batch/v1", "Job", name)


def with_spec_hash(job: Mapping[str, Any]) -> dict[str, Any]:
    """The Job with a hash of its spec as an annotation.

    A Job's template is immutable. The hash reveals a spec that changed while the Job's name did
    not, such as another pull secret, node selector or memory limit.
    """
    metadata = dict(job["metadata"])
    metadata["annotations"] = {
        **metadata.get("annotations", {}),
        SPEC_HASH: names.digest(job["spec"])[:16],
    }
    return {**job, "metadata": metadata}


def _outdated(live: LiveJob, desired: Object, model: SpeculativeModel) -> bool:
    """Whether a running or failed Job has to be replaced by one with another spec."""
    if live.state not in ("Running", "Failed") or not sole_owner(live.body, model):
        return False
    actual = live.body["metadata"].get("annotations", {}).get(SPEC_HASH)
    return actual is not None and actual != desired["metadata"]["annotations"][SPEC_HASH]


def sole_owner(job: Object, model: SpeculativeModel) -> bool:
    """Whether no other resource shares the Job."""
    owners = [o for o in job["metadata"].get("ownerReferences", []) if o.get("kind") == KIND]
    return all(owner.get("uid") == model.metadata.uid for owner in owners)


def belongs(job: Object, model: SpeculativeModel) -> bool:
    """Whether the resource owns the Job, alone or with others."""
    labels = job["metadata"].get("labels", {})
    name = model.metadata.name
    return labels.get(names.MODEL) == name or names.sharer(name) in labels


def own(observed: Observed, model: SpeculativeModel, component: str | None = None) -> list[str]:
    """Names of the Jobs that are this resource's alone, of one component or of all."""
    return [
        name
        for name, job in sorted(observed.jobs.items())
        if belongs(job, model)
        and sole_owner(job, model)
        and not being_deleted(job)
        and component in (None, job["metadata"].get("labels", {}).get(names.COMPONENT))
    ]


def unfinished(
    observed: Observed, model: SpeculativeModel, component: str | None = None
) -> list[str]:
    """Names of the Jobs that `own` lists and that still run."""
    return [n for n in own(observed, model, component) if find(observed, n).state == "Running"]


def others(context: Context, component: str, current: str | None) -> tuple[Ref, ...]:
    """References to the Jobs that `own` lists for a component, without the current one."""
    jobs = own(context.observed, context.model, component)
    return tuple(ref(name) for name in jobs if name != current)
