"""BenchmarkCompleted: after the verification, a Job measures with and without speculation.

The status keeps the summary, the volume the whole report.
"""

from typing import Any

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.conditions import Condition, Status, Type
from specdec.api.reasons import BenchmarkReason, VerificationReason
from specdec.desired import measurement as desired
from specdec.pipeline import job
from specdec.pipeline.job import Done, Task
from specdec.pipeline.live_job import LiveJob
from specdec.pipeline.stage import Context, Outcome
from specdec.pipeline.stages import baseline
from specdec.pipeline.stages.verification import SUSPENDED

Entry = dict[str, Any]


def benchmark(context: Context) -> Outcome:
    """Benchmark each served revision once."""
    if context.model.spec.benchmark.mode == "Disabled":
        return _disabled(context)
    facts = context.facts
    task = _task(context)
    outdated = job.others(context, desired.BENCHMARK, task.job["metadata"]["name"])
    step = job.advance(context, task)
    if isinstance(step, Done):
        conditions, status = (_completed(step.result),), {"benchmark": step.result}
        return Outcome(conditions, facts, proceed=True, delete=outdated, status=status)
    return Outcome(
        (_condition("Unknown", step.cause),),
        facts,
        proceed=True,
        apply=step.apply,
        delete=(*outdated, *step.delete),
        status=_stale_status(context),
        requeue_after=step.requeue_after,
    )


def while_stopped(context: Context) -> Outcome:
    """What to report while an earlier stage is not done: the last result is stale."""
    if context.model.spec.benchmark.mode == "Disabled":
        return _disabled(context)
    status = _stale_status(context)
    if not status:
        return Outcome((), context.facts, proceed=False)
    message = (
        f"measured at {status['benchmark'].get('measuredAt', 'an unknown time')} and counts "
        "again, or is repeated, when the desired revision serves"
    )
    conditions = (_condition("Unknown", Cause(VerificationReason.STALE, message)),)
    return Outcome(conditions, context.facts, proceed=False, status=status)


def _disabled(context: Context) -> Outcome:
    cause = Cause(VerificationReason.NOT_RUN, "spec.benchmark.mode is Disabled")
    outdated = job.others(context, desired.BENCHMARK, None)
    return Outcome((_condition("Unknown", cause),), context.facts, proceed=True, delete=outdated)


def _task(context: Context) -> Task[Entry]:
    model, facts = context.model, context.facts
    drafts, image = backends.method(model).draft_tokens(model) or 0, context.images.operator
    plan_hash = desired.benchmark_hash(model, facts.repository, facts.image, drafts)
    last: Entry = model.status.get("benchmark", {})
    waits_for = "the verification" if facts.available else "Available"
    other = baseline.baseline(context)
    return Task(
        job=job.with_spec_hash(
            desired.benchmark_job(model, plan_hash, drafts, facts.volume, image, other)
        ),
        parse=lambda live: _result(context, live, plan_hash),
        sections=("benchmark",),
        running=BenchmarkReason.MEASURING,
        failure=BenchmarkReason.BENCHMARK_FAILED,
        activity="measures the service",
        purpose="to measure the service",
        suspended=SUSPENDED,
        remembered={**last, "stale": False} if last.get("planHash") == plan_hash else None,
        waits_for="" if facts.available and facts.verification_ended else waits_for,
        obstacle=baseline.obstacle(context, other),
        # A Job that fails because too many requests failed still reports its measurements.
        final=("Complete", "Failed"),
    )


def _result(context: Context, live: LiveJob, plan_hash: str) -> Entry | None:
    """The Job's result; None if it is for other servers or requests, or if the Job left none."""
    measured = live.result.benchmark
    if measured is None or measured.plan_hash != plan_hash:
        return None
    return {
        **measured.shown(),
        "state": "Completed" if live.state == "Complete" else "Failed",
        "report": desired.report(context.model, plan_hash),
        "stale": False,
    }


def _completed(entry: Entry) -> Condition:
    message = f"{entry.get('message', '')}; the whole report is {entry['report']} on the volume"
    if entry["state"] == "Completed":
        return _condition("True", Cause(BenchmarkReason.COMPLETED, message))
    return _condition("False", Cause(BenchmarkReason.ERROR_RATE_HIGH, message))


def _stale_status(context: Context) -> dict[str, Any]:
    last = context.model.status.get("benchmark")
    return {"benchmark": {**last, "stale": True}} if last else {}


def _condition(status: Status, cause: Cause) -> Condition:
    return Condition(Type.BENCHMARK_COMPLETED, status, cause.reason, cause.message)
