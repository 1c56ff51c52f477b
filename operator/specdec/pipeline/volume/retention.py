"""VolumePruned: a Job deletes the directories of revisions that have left the history.

`recorded` writes two lists to the status: the revisions that served, and the directories that the
resource no longer uses. `retention` deletes these directories, unless a resource of the claim uses
them. It deletes nothing while a resource of the claim is in progress or has an invalid spec.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from specdec.api import names
from specdec.api.cause import Cause
from specdec.api.conditions import PROBLEMS, Condition, Status, Type
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import RetentionReason, parse
from specdec.desired import engine
from specdec.desired import prune as desired
from specdec.jobs.prune import CHECKPOINTS, ENGINES, REPOSITORIES
from specdec.pipeline import job
from specdec.pipeline.job import Done, Task
from specdec.pipeline.job_results import Pruned
from specdec.pipeline.observed import Neighbours, Object, Ref
from specdec.pipeline.stage import POLL, Context, Outcome
from specdec.pipeline.volume import references
from specdec.pipeline.volume.references import Directories, Names

# Seconds until other resources are read again: their changes queue no reconcile of this one.
_CHECK = 30.0
# Seconds until a reconcile that needs no event: to read the other resources after unused names are
# recorded, and to replace the message of a prune that has ended.
_AT_ONCE = 1.0
# At most this many unused names of each folder are remembered and deleted. Directories of the
# others stay on the volume until somebody runs `specdec prune`.
_MOST_NAMES = 100
# Once these conditions are True, the status names all that the resource uses on the volume.
_PUBLISHED = (Type.MODELS_FETCHED, Type.ENGINES_READY, Type.REPOSITORY_READY)


@dataclass(frozen=True)
class _Plan:
    """The directories to delete, and the repositories in use.

    The Job also keeps the directories that the manifests of these repositories list.
    """

    only: Directories
    repositories: list[str]


def recorded(
    model: SpeculativeModel, status: Mapping[str, Any], conditions: Iterable[Condition]
) -> dict[str, Any]:
    """The fields `history` and `unused` of the status; none without `revisionHistoryLimit`.

    Args:
        model: the resource with its earlier status.
        status: the other fields of the new status.
        conditions: the new conditions.
    """
    limit, old = model.spec.revision_history_limit, model.status
    if limit is None:
        return {}
    before = {item["type"]: item["status"] for item in old.get("conditions", [])}
    now = {str(condition.type): str(condition.status) for condition in conditions}
    history: list[dict[str, Any]] = old.get("history", [])
    for state, judged in ((old, before), (status, now)):
        history = _with_served(history, state, judged)
    history = history[: limit + 1]
    used = references.merged(references.named(status), references.in_history({"history": history}))
    known = (references.named(old), references.in_history(old), old.get("unused", {}))
    unused = _sorted(references.without(references.merged(*known), used))
    fields = {"history": history, "unused": unused}
    return {name: value for name, value in fields.items() if value}


def _with_served(
    history: list[dict[str, Any]], status: Mapping[str, Any], conditions: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The history, with the serving revision as its first entry.

    Only a complete rollout counts. Before that, the status combines the serving revision with the
    checkpoints and engines of the next one.
    """
    serving = status.get("serving", {})
    revision = serving.get("revision")
    complete = all(conditions.get(t) == "True" for t in (*_PUBLISHED, Type.AVAILABLE))
    if not complete or not revision or revision != status.get("repository", {}).get("hash"):
        return history
    used = references.named(status)
    entry = {
        "revision": revision,
        "image": serving.get("image", ""),
        "checkpoints": sorted(used[CHECKPOINTS]),
        "engines": sorted(used[ENGINES]),
    }
    return [entry, *(item for item in history if item["revision"] != revision)]


def _sorted(values: Names) -> Directories:
    """The sorted names in each folder that has any, at most `_MOST_NAMES` in each."""
    return {kind: sorted(items)[:_MOST_NAMES] for kind, items in values.items() if items}


def retention(context: Context, status: Mapping[str, Any], ready: Condition) -> Outcome:
    """Delete what is unused once no resource of the claim is in progress.

    Args:
        context: the context of the reconcile, after all stages.
        status: the new status, with the fields of `recorded`.
        ready: the new condition Ready.
    """
    unfinished = tuple(
        map(job.ref, job.unfinished(context.observed, context.model, desired.COMPONENT))
    )
    if context.model.spec.revision_history_limit is None:
        return Outcome((), context.facts, proceed=False, delete=unfinished)
    if not status.get("unused"):
        condition = _condition("True", Cause(RetentionReason.PRUNED, _summary(context, status)))
        return Outcome((condition,), context.facts, proceed=False, delete=unfinished)
    neighbours = context.observed.neighbours
    if ready.status == "True" and neighbours is None:
        cause = Cause(RetentionReason.PRUNE_WAITS, "the resources of the claim are read next")
        return _waiting(context, cause, unfinished, _AT_ONCE)
    cause_ = _obstacle(context, status, ready)
    if cause_ is not None or neighbours is None:
        return _waiting(context, cause_ or _not_ready(), unfinished, _CHECK)
    plan = _plan(context, status, neighbours)
    if not plan.only:
        cause = Cause(RetentionReason.PRUNED, _summary(context, status))
        return Outcome(
            (_condition("True", cause),),
            context.facts,
            proceed=False,
            delete=unfinished,
            status={"unused": {}},
        )
    return _prune(context, plan)


def _prune(context: Context, plan: _Plan) -> Outcome:
    """Run the prune Job; with its result, forget what was unused."""
    task = _task(context, plan)
    outdated = job.others(context, desired.COMPONENT, task.job["metadata"]["name"])
    step = job.advance(context, task)
    if isinstance(step, Done):
        size = f"{step.result.bytes / 1e6:.1f} MB"
        message = f"deleted {step.result.deleted} directories of earlier revisions ({size})"
        return Outcome(
            (_condition("True", Cause(RetentionReason.PRUNED, message)),),
            context.facts,
            proceed=False,
            delete=(*outdated, *_builds(context, plan.only)),
            # The next reconcile writes what the volume keeps, and must not wait for an event.
            requeue_after=_AT_ONCE,
            status={"unused": {}},
        )
    own = Type.VOLUME_PRUNED in step.cause.reason.types
    reason = step.cause.reason if own else RetentionReason.PRUNE_FAILED
    condition = _condition(
        "False" if step.failed else "Unknown", Cause(reason, step.cause.message)
    )
    return Outcome(
        (condition,),
        context.facts,
        proceed=False,
        apply=step.apply,
        delete=(*outdated, *step.delete),
        requeue_after=step.requeue_after,
    )


def _task(context: Context, plan: _Plan) -> Task[Pruned]:
    manifest = desired.retention_job(
        context.model,
        plan.only,
        plan.repositories,
        context.facts.volume,
        context.images.operator,
    )
    return Task(
        job=job.with_spec_hash(manifest),
        parse=lambda live: live.result.prune,
        sections=("prune",),
        running=RetentionReason.PRUNING,
        failure=RetentionReason.PRUNE_FAILED,
        activity="deletes what earlier revisions left",
        purpose="to delete what earlier revisions left",
        suspended="nothing is deleted while spec.suspend is true",
    )


def _plan(context: Context, status: Mapping[str, Any], neighbours: Neighbours) -> _Plan:
    """The unused names that no resource of the claim uses, and the repositories in use."""
    model = context.model
    claim = names.claim_name(model)
    bodies: list[Object] = [*_others(model, neighbours.resources), _own(context, status)]
    workloads = [*neighbours.workloads, *context.observed.deployments.values()]
    used = references.keep(bodies, workloads, claim)
    only = _sorted(references.without(status["unused"], used))
    return _Plan(only, used[REPOSITORIES])


def _own(context: Context, status: Mapping[str, Any]) -> Object:
    """This resource as the API server has it after this reconcile."""
    own = context.model
    stored = next(
        (
            body
            for body in (context.observed.neighbours or Neighbours(())).resources
            if body["metadata"]["name"] == own.metadata.name
        ),
        {"spec": own.spec.model_dump(mode="json", by_alias=True)},
    )
    return {"spec": stored["spec"], "metadata": {"name": own.metadata.name}, "status": status}


def _others(model: SpeculativeModel, bodies: Sequence[Object]) -> list[Object]:
    return [body for body in bodies if body["metadata"]["name"] != model.metadata.name]


def _obstacle(context: Context, status: Mapping[str, Any], ready: Condition) -> Cause | None:
    """Why nothing may be deleted now; None if all resources of the claim are settled."""
    neighbours, model = context.observed.neighbours, context.model
    if ready.status != "True" or neighbours is None:
        return _not_ready()
    unused = status["unused"].get(REPOSITORIES, [])
    for revision in unused:
        if revision[: names.REVISION_DIGITS] in neighbours.revisions:
            text = f"waits until no pod serves revision {revision[: names.REVISION_DIGITS]}"
            return Cause(RetentionReason.PRUNE_WAITS, text)
    claim = names.claim_name(model)
    others = sorted(
        _others(model, neighbours.resources), key=lambda body: str(body["metadata"]["name"])
    )
    causes = (_unsettled(body) for body in others if references.claim_of(body) == claim)
    return next((cause for cause in causes if cause is not None), None)


def _not_ready() -> Cause:
    return Cause(RetentionReason.PRUNE_WAITS, "waits until this resource is Ready")


def _unsettled(body: Object) -> Cause | None:
    """Why the status of another resource does not name all that the other resource needs."""
    name = f"SpeculativeModel {body['metadata']['name']}"
    try:
        SpeculativeModel.parse(dict(body))
    except ValidationError:
        text = f"nothing is deleted, because the spec of {name} is invalid: correct or delete it"
        return Cause(RetentionReason.PRUNE_BLOCKED, text)
    status = body.get("status", {})
    if status.get("observedGeneration") != body["metadata"].get("generation"):
        return Cause(RetentionReason.PRUNE_WAITS, f"waits for {name}, which has changed")
    conditions = {item["type"]: item for item in status.get("conditions", [])}
    for kind in _PUBLISHED:
        condition = conditions.get(kind, {"status": "Unknown", "reason": "Waiting"})
        if condition["status"] == "True":
            continue
        # The condition of an earlier stage has the cause.
        first = next((c for c in conditions.values() if c["status"] == "False"), condition)
        if parse(first["reason"]) in PROBLEMS:
            text = (
                f"nothing is deleted, because {name} has {first['reason']}: correct or delete it"
            )
            return Cause(RetentionReason.PRUNE_BLOCKED, text)
        return Cause(RetentionReason.PRUNE_WAITS, f"waits for {name}: {kind} is not True")
    return None


def _builds(context: Context, only: Directories) -> tuple[Ref, ...]:
    """The Jobs that built deleted engines: an engine is built again only if its Job is deleted."""
    volume = context.facts.volume
    built = {engine.job_name(key, volume) for key in only.get(ENGINES, [])}
    own = job.own(context.observed, context.model, "engine")
    return tuple(job.ref(name) for name in own if name in built)


def _summary(context: Context, status: Mapping[str, Any]) -> str:
    earlier = max(0, len(status.get("history", [])) - 1)
    limit = context.model.spec.revision_history_limit
    return f"the volume keeps {earlier} of at most {limit} earlier revisions"


def _waiting(
    context: Context, cause: Cause, delete: tuple[Ref, ...], requeue_after: float
) -> Outcome:
    status: Status = "False" if cause.reason in PROBLEMS else "Unknown"
    return Outcome(
        (_condition(status, cause),),
        context.facts,
        proceed=False,
        delete=delete,
        requeue_after=POLL if delete else requeue_after,
    )


def _condition(status: Status, cause: Cause) -> Condition:
    return Condition(Type.VOLUME_PRUNED, status, cause.reason, cause.message)
