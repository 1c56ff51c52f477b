"""BenchmarkCompleted: a Job measures the verified service with and without speculation.

Its summary is kept in the status, the whole report on the volume.
"""

from collections.abc import Mapping
from typing import Any

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.conditions import Condition, Status, Type
from specdec.desired import measurement as desired
from specdec.pipeline import job_ladder
from specdec.pipeline.job_results import Benchmarked, result
from specdec.pipeline.stage import Context, Outcome
from specdec.pipeline.verification import SUSPENDED, Step, others, unfinished

Entry = dict[str, Any]


def benchmark(context: Context) -> Outcome:
    """Run the benchmark once for everything that serves, unless its result is known."""
    if context.model.spec.benchmark.mode == "Disabled":
        return _disabled(context)
    model, facts = context.model, context.facts
    plan_hash = desired.benchmark_hash(model, facts.repository, facts.image)
    drafts, image = backends.draft_tokens(model), context.images.operator
    job = job_ladder.shaped(desired.benchmark_job(model, plan_hash, drafts, facts.volume, image))
    state = job_ladder.look(context.observed, job["metadata"]["name"])
    outdated = others(context, desired.BENCHMARK, state.name)
    found = _known(context, state, plan_hash)
    if found is not None:
        told, status = (_judged(found),), {"benchmark": found}
        return Outcome(told, facts, proceed=True, delete=outdated, status=status)
    step = _next(context, state, job)
    return Outcome(
        (_condition("Unknown", step.words),),
        facts,
        proceed=True,
        apply=step.apply,
        delete=(*outdated, *step.delete),
        status=_old(context),
        requeue_after=step.retry,
    )


def meanwhile(context: Context) -> Outcome:
    """What is said while an earlier stage is not done: what was measured is not current."""
    if context.model.spec.benchmark.mode == "Disabled":
        return _disabled(context)
    old = _old(context)
    if not old:
        return Outcome((), context.facts, proceed=False)
    message = (
        f"measured at {old['benchmark'].get('measuredAt', 'some time')} of another revision: it "
        "is measured again once the wanted one serves"
    )
    told = (_condition("Unknown", Cause("Stale", message)),)
    return Outcome(told, context.facts, proceed=False, status=old)


def _disabled(context: Context) -> Outcome:
    words = Cause("NotRun", "spec.benchmark.mode is Disabled")
    gone = others(context, desired.BENCHMARK, None)
    return Outcome((_condition("Unknown", words),), context.facts, proceed=True, delete=gone)


def _next(context: Context, state: job_ladder.Work, job: dict[str, Any]) -> Step:
    facts = context.facts
    if context.model.spec.suspend:
        return Step(Cause("Suspended", SUSPENDED), retry=None)
    if job_ladder.outdated(state, job, context.model):
        words = Cause("Queued", f"Job {state.name} makes way for one with the changed settings")
        return Step(words, delete=(job_ladder.delete(state.name),))
    if state.state == "Absent" and not (facts.available and facts.verified):
        first = "the verification" if facts.available else "Available"
        return Step(Cause("Waiting", f"waits for {first}"), retry=None)
    if state.state == "Absent":
        words = Cause("Queued", f"Job {state.name} is created to measure the service")
        return Step(words, apply=(job,))
    doing = "measures the service"
    return unfinished(state, "benchmark", "Measuring", doing, "BenchmarkFailed")


def _known(context: Context, state: job_ladder.Work, plan_hash: str) -> Entry | None:
    """The Job's result, else what the status remembers of the very same plan.

    A Job that failed for its errors has measured nevertheless.
    """
    if state.state in ("Complete", "Failed"):
        told = result(state.pods).benchmark
        if told is not None and told.plan_hash == plan_hash:
            return _entry(context, told, plan_hash, completed=state.state == "Complete")
    old: Mapping[str, Any] = context.model.status.get("benchmark", {})
    return {**old, "stale": False} if old.get("planHash") == plan_hash else None


def _entry(context: Context, told: Benchmarked, plan_hash: str, *, completed: bool) -> Entry:
    return {
        **told.shown(),
        "state": "Completed" if completed else "Failed",
        "report": desired.report(context.model, plan_hash),
        "stale": False,
    }


def _judged(found: Entry) -> Condition:
    message = f"{found.get('message', '')}; the whole report is {found['report']} on the volume"
    if found["state"] == "Completed":
        return _condition("True", Cause("Completed", message))
    return _condition("False", Cause("ErrorRateHigh", message))


def _old(context: Context) -> dict[str, Any]:
    old = context.model.status.get("benchmark")
    return {"benchmark": {**old, "stale": True}} if old else {}


def _condition(status: Status, words: Cause) -> Condition:
    return Condition(Type.BENCHMARK_COMPLETED, status, words.reason, words.message)
