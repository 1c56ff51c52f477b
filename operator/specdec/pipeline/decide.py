"""The decision of one reconcile: run the stages in order, until one of them stops the chain.

Each stage is a pure function. It takes the snapshot of the cluster and the facts of earlier
stages, and returns an `Outcome`. `decide` combines the outcomes into one `Decision`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specdec.api import names
from specdec.api.conditions import Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import ReadyReason
from specdec.backends.facts import Images
from specdec.pipeline import job, summary
from specdec.pipeline.observed import Object, Observed, Ref
from specdec.pipeline.pods import workload
from specdec.pipeline.stage import POLL, Context, Outcome, Stage
from specdec.pipeline.stages import benchmark as benchmarking
from specdec.pipeline.stages import verification as verifying
from specdec.pipeline.stages.accept import accept
from specdec.pipeline.stages.benchmark import benchmark
from specdec.pipeline.stages.engines import engines
from specdec.pipeline.stages.fetch import fetch
from specdec.pipeline.stages.isolation import isolation
from specdec.pipeline.stages.memory import memory
from specdec.pipeline.stages.network import network, services
from specdec.pipeline.stages.repository import repository, revision
from specdec.pipeline.stages.verification import verification
from specdec.pipeline.volume import retention
from specdec.pipeline.volume.storage import storage

CHAIN: tuple[Stage, ...] = (
    accept,
    storage,
    isolation,
    fetch,
    memory,
    engines,
    repository,
    workload.workload,
    network,
    verification,
    benchmark,
)
# Status fields that keep their last value if the chain stops before the stages that write them.
_KEPT = ("models", "engines", "imageContract", "repository", "serving", "url", "endpoints")


@dataclass(frozen=True)
class Decision:
    """What one reconcile does.

    Attributes:
        apply: desired objects, in the order in which they are applied.
        rescale: the live workload with the desired replicas, where they differ. It is applied even
            if an object of `apply` is refused.
        delete: objects to delete.
        delete_last: objects to delete once the status reports what they show.
        conditions: the conditions, without timestamps.
        status: all other fields of the status.
        requeue_after: seconds until the next reconcile; None where a watch event is enough.
        partial: whether conditions of other types than those in `conditions` stay in the status.
    """

    apply: tuple[Object, ...] = ()
    rescale: tuple[Object, ...] = ()
    delete: tuple[Ref, ...] = ()
    delete_last: tuple[Ref, ...] = ()
    conditions: tuple[Condition, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    requeue_after: float | None = None
    partial: bool = False


def decide(model: SpeculativeModel, observed: Observed, images: Images) -> Decision:
    """Run the chain of stages on the snapshot."""
    context = Context(model, observed, images)
    outcomes: list[Outcome] = []
    for stage in CHAIN:
        outcome = stage(context)
        outcomes.append(outcome)
        context = replace(context, facts=outcome.facts, model=outcome.model or context.model)
        if not outcome.proceed:
            break
    else:
        return _decision(context, outcomes)
    stale = (verifying.while_stopped(context), benchmarking.while_stopped(context))
    return _decision(context, [*outcomes, _previous_revision(context), *stale])


def _previous_revision(context: Context) -> Outcome:
    """Judge the live revision, scale it and apply its Services while the chain is stopped."""
    if not workload.exists(context.observed):
        return Outcome((), context.facts, proceed=False)
    condition = workload.available(context)
    settled = condition.status == "True" or condition.reason == ReadyReason.SUSPENDED
    network_ = services(context, context.observed.deployments or ("target",))
    return replace(
        network_,
        conditions=(condition, *network_.conditions),
        proceed=False,
        apply=workload.rescale(context) + network_.apply,
        requeue_after=None if settled else POLL,
    )


def _decision(context: Context, outcomes: list[Outcome]) -> Decision:
    stages = summary.complete([c for outcome in outcomes for c in outcome.conditions])
    live = {served.repository for served in workload.served(context.observed)}
    desired = context.facts.repository or revision(context)
    serves_desired = None if desired is None else live == {desired}
    ready = summary.ready(context.model, stages, serves_desired=serves_desired)
    status = _status(context, outcomes, summary.phase(context.model, stages, ready))
    status |= retention.recorded(context.model, status, stages)
    pruned = retention.retention(context, status, ready)
    status |= pruned.status
    if not status.get("unused"):
        status.pop("unused", None)
    outcomes = [*outcomes, pruned]
    refs = [ref for outcome in outcomes for ref in outcome.delete]
    last = tuple(ref for outcome in outcomes for ref in outcome.delete_last)
    if context.model.spec.suspend:
        refs += map(job.ref, job.unfinished(context.observed, context.model))
    waits = [o.requeue_after for o in outcomes if o.requeue_after is not None]
    return Decision(
        apply=tuple(obj for outcome in outcomes for obj in outcome.apply),
        rescale=workload.rescale(context),
        delete=tuple(ref for ref in dict.fromkeys(refs) if ref not in last),
        delete_last=last,
        conditions=(*stages, *pruned.conditions, ready),
        status=status,
        requeue_after=min(waits, default=None),
    )


def _status(context: Context, outcomes: list[Outcome], phase: str) -> dict[str, Any]:
    """The status without conditions; fields of the stages replace those of earlier reconciles."""
    model = context.model
    replicas, ready_replicas = workload.counts(context)
    selector = ",".join(f"{k}={v}" for k, v in sorted(names.selector(model).items()))
    status: dict[str, Any] = {
        "observedGeneration": model.metadata.generation,
        "phase": phase,
        "replicas": replicas,
        "readyReplicas": ready_replicas,
        "selector": selector,
        **{key: model.status[key] for key in _KEPT if key in model.status},
    }
    for outcome in outcomes:
        fields = dict(outcome.status)
        plan = status.get("plan", {}) | fields.pop("plan", {})
        status |= fields | ({"plan": plan} if plan else {})
    if not status.get("imageContract"):
        # The image has changed since its check, or the backend's images are not checked.
        status.pop("imageContract", None)
    status |= _served(context, outcomes)
    if not replicas and (model.spec.suspend or not model.spec.serving.replicas):
        status.pop("serving", None)  # no pod is left that serves
    return status | {"columns": summary.columns(model, status)}


def _served(context: Context, outcomes: list[Outcome]) -> dict[str, Any]:
    """The field `serving`: the live revision, if pods are available and all have the same one."""
    available = [c for o in outcomes for c in o.conditions if c.type == Type.AVAILABLE]
    live = workload.served(context.observed)
    revisions = {(served.repository, served.image) for served in live}
    if len(revisions) != 1 or not any(c.status == "True" for c in available):
        return {}
    ((repository_, image),) = revisions
    return {"serving": {"revision": repository_, "image": image}}
