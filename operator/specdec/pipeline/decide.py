"""Pure: what was read in, what to do out. The chain stops at the first stage that is not done."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specdec.api import names
from specdec.api.conditions import Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.pipeline import benchmark as benchmarking
from specdec.pipeline import job, ready, workload
from specdec.pipeline import verification as verifying
from specdec.pipeline.accept import accept
from specdec.pipeline.benchmark import benchmark
from specdec.pipeline.engines import engines
from specdec.pipeline.fetch import fetch
from specdec.pipeline.isolation import isolation
from specdec.pipeline.memory import memory
from specdec.pipeline.network import network, reachable
from specdec.pipeline.observed import Object, Observed, Ref
from specdec.pipeline.repository import repository
from specdec.pipeline.stage import POLL, Context, Outcome, Stage
from specdec.pipeline.storage import storage
from specdec.pipeline.verification import verification

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
# Results that outlive their Jobs, and the addresses: kept while a stage before them is not done.
_KEPT = ("models", "engines", "repository", "serving", "url", "endpoints")


@dataclass(frozen=True)
class Decision:
    """What one reconcile does.

    `apply` in order; `status` is the whole status without conditions' timestamps (those are merged
    by `reconcile`); `requeue_after` in seconds, None when an event will bring us back. `partial`
    keeps the conditions that the resource has and `conditions` does not name.
    """

    apply: tuple[Object, ...] = ()
    delete: tuple[Ref, ...] = ()
    conditions: tuple[Condition, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    requeue_after: float | None = None
    partial: bool = False


def decide(model: SpeculativeModel, observed: Observed, images: Images) -> Decision:
    """Run the chain on what was read and say what to write."""
    context = Context(model, observed, images)
    outcomes: list[Outcome] = []
    for stage in CHAIN:
        outcome = stage(context)
        outcomes.append(outcome)
        context = replace(context, facts=outcome.facts)
        if not outcome.proceed:
            break
    else:
        return _decision(context, outcomes)
    stale = (verifying.while_unavailable(context), benchmarking.while_unavailable(context))
    return _decision(context, [*outcomes, _meanwhile(context), *stale])


def _meanwhile(context: Context) -> Outcome:
    """What goes on while the chain waits: the pods of the previous revision, if there are any."""
    if not workload.exists(context.observed):
        return Outcome((), context.facts, proceed=False)
    condition = workload.available(context)
    settled = condition.status == "True" or condition.reason == "Suspended"
    keep = reachable(context, context.observed.deployments or ("target",))
    return replace(
        keep,
        conditions=(condition, *keep.conditions),
        proceed=False,
        apply=workload.held(context) + keep.apply,
        requeue_after=None if settled else POLL,
    )


def _decision(context: Context, outcomes: list[Outcome]) -> Decision:
    stages = ready.complete([c for outcome in outcomes for c in outcome.conditions])
    summary = ready.summary(context.model, stages)
    refs = [ref for outcome in outcomes for ref in outcome.delete]
    if context.model.spec.suspend:
        refs += map(job.ref, job.unfinished(context.observed, context.model))
    waits = [o.requeue_after for o in outcomes if o.requeue_after is not None]
    return Decision(
        apply=tuple(obj for outcome in outcomes for obj in outcome.apply),
        delete=tuple(dict.fromkeys(refs)),
        conditions=(*stages, summary),
        status=_status(context, outcomes, ready.phase(context.model, stages, summary)),
        requeue_after=min(waits, default=None),
    )


def _status(context: Context, outcomes: list[Outcome], phase: str) -> dict[str, Any]:
    """The whole status but its conditions: what stages found, and what earlier ones had found."""
    model = context.model
    replicas, ready_replicas = workload.counts(context.observed)
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
        found = dict(outcome.status)
        plan = status.get("plan", {}) | found.pop("plan", {})
        status |= found | ({"plan": plan} if plan else {})
    status |= _served(context, outcomes)
    return status


def _served(context: Context, outcomes: list[Outcome]) -> dict[str, Any]:
    """Which revision answers, known for sure only when all pods are of one revision."""
    available = [c for o in outcomes for c in o.conditions if c.type == Type.AVAILABLE]
    live = workload.served(context.observed)
    revisions = {(served.repository, served.image) for served in live}
    if len(revisions) != 1 or not any(c.status == "True" for c in available):
        return {}
    ((repository_, image),) = revisions
    return {"serving": {"revision": repository_, "image": image}}
