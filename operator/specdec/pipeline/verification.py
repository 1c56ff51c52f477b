"""SpeculationActive, OutputEquivalent, SpeculationEffective: a Job asks the service itself.

What it found is kept in the status and outlives it; another revision makes it stale.
"""

from dataclasses import dataclass, replace
from typing import Any

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.conditions import VERIFIED, Condition
from specdec.api.model import Method, SpeculativeModel
from specdec.desired import measurement as desired
from specdec.pipeline import diagnosis, job_ladder, verification_result
from specdec.pipeline.job_results import Section, result
from specdec.pipeline.observed import Object, Ref
from specdec.pipeline.stage import POLL, Context, Outcome
from specdec.pipeline.verification_result import Entry

SUSPENDED = "nothing is measured while spec.suspend is true"


@dataclass(frozen=True)
class Step:
    """What to say and do about a measurement that has no result yet.

    `over` says that none will come by itself; `retry` is in seconds, None when an event will tell.
    """

    words: Cause
    apply: tuple[Object, ...] = ()
    delete: tuple[Ref, ...] = ()
    over: bool = False
    retry: float | None = POLL


def verification(context: Context) -> Outcome:
    """Run the verification once for everything that serves, unless its result is known."""
    idle = _idle(context)
    if idle is not None:
        return idle
    model, facts = context.model, context.facts
    plan_hash = desired.verification_hash(model, facts.repository, facts.image)
    drafts = backends.draft_tokens(model)
    image = context.images.operator
    job = job_ladder.shaped(desired.verify_job(model, plan_hash, facts.version, drafts, image))
    state = job_ladder.look(context.observed, job["metadata"]["name"])
    outdated = others(context, desired.VERIFY, state.name)
    found = _known(context, state, plan_hash)
    if found is not None:
        told = verification_result.conditions(model, found)
        facts = replace(facts, verified=True)
        status = {"speculation": found}
        return Outcome(told, facts, proceed=True, delete=outdated, status=status)
    step = _next(context, state, job)
    return Outcome(
        _unknown(step.words),
        replace(facts, verified=step.over),
        proceed=True,
        apply=step.apply,
        delete=(*outdated, *step.delete),
        status=_old(model),
        requeue_after=step.retry,
    )


def meanwhile(context: Context) -> Outcome:
    """What is said while an earlier stage is not done: nothing that was measured is current."""
    idle = _idle(context)
    if idle is not None:
        return idle
    old = verification_result.kept(context.model)
    if old is None:
        return Outcome((), context.facts, proceed=False)
    message = (
        f"measured at {old.get('measuredAt', 'some time')} of another revision: it is measured "
        "again once the wanted one serves"
    )
    told = _unknown(Cause("Stale", message))
    return Outcome(told, context.facts, proceed=False, status=_old(context.model))


def others(context: Context, component: str, current: str | None) -> tuple[Ref, ...]:
    """Measuring Jobs of what does not serve any more; what they found is in the status."""
    found = job_ladder.of(context.observed, context.model, component)
    return tuple(job_ladder.delete(name) for name in found if name != current)


def _idle(context: Context) -> Outcome | None:
    """What is said where nothing is to be measured; None where something is."""
    model = context.model
    if model.spec.verification.mode == "Disabled":
        words = Cause("NotRun", "spec.verification.mode is Disabled")
        told = _unknown(words)
    elif model.spec.speculation.method is Method.NONE:
        words = Cause("MethodNone", "spec.speculation.method is None: the target answers alone")
        active, *rest = _unknown(words)
        told = (replace(active, status="False"), *rest)
    else:
        return None
    gone = others(context, desired.VERIFY, None)
    facts = replace(context.facts, verified=True)
    return Outcome(told, facts, proceed=True, delete=gone)


def _known(context: Context, state: job_ladder.Work, plan_hash: str) -> Entry | None:
    """The Job's result, else what the status remembers of the very same plan."""
    if state.state == "Complete":
        told = result(state.pods).verification
        if told is not None and told.plan_hash == plan_hash:
            return verification_result.entry(told)
    old = verification_result.kept(context.model)
    return old if old is not None and old.get("planHash") == plan_hash else None


def _next(context: Context, state: job_ladder.Work, job: dict[str, Any]) -> Step:
    """What to say and do where there is no result yet."""
    if context.model.spec.suspend:
        return Step(Cause("Suspended", SUSPENDED), retry=None)
    if job_ladder.outdated(state, job, context.model):
        words = Cause("Queued", f"Job {state.name} makes way for one with the changed settings")
        return Step(words, delete=(job_ladder.delete(state.name),))
    if state.state == "Absent" and not context.facts.available:
        return Step(Cause("Waiting", "waits for Available"), retry=None)
    if state.state == "Absent":
        words = Cause("Queued", f"Job {state.name} is created to ask the service")
        return Step(words, apply=(job,))
    return unfinished(state, "verification", "Verifying", "asks the service", "VerificationFailed")


def unfinished(
    state: job_ladder.Work, section: Section, running: str, doing: str, failed: str
) -> Step:
    """What to say and do of a Job that left no result; `running` and `failed` are reasons."""
    name = state.name
    if state.state == "Deleting":
        return Step(Cause("Queued", f"Job {name} is being deleted"))
    if state.state == "Running":
        return Step(diagnosis.running(name, doing, running, state.pods))
    if state.state == "Failed":
        words = diagnosis.failed(name, state.job, state.pods, failed)
        return Step(words, over=True, retry=None)
    if not state.pods:
        words = Cause("Queued", f"Job {name} lost its result with its pod and runs again")
        return Step(words, delete=(job_ladder.delete(name),))
    if problem := result(state.pods).problem(section):
        return Step(diagnosis.unread(name, problem), over=True, retry=None)
    message = f"Job {name} left no result; to try again: kubectl delete job {name}"
    return Step(Cause(failed, message), over=True, retry=None)


def _old(model: SpeculativeModel) -> dict[str, Any]:
    old = verification_result.kept(model)
    return {} if old is None else {"speculation": verification_result.stale(old)}


def _unknown(words: Cause) -> tuple[Condition, ...]:
    return tuple(Condition(kind, "Unknown", words.reason, words.message) for kind in VERIFIED)
