"""SpeculationActive, OutputEquivalent, SpeculationEffective: a Job measures the service.

The status keeps the result after the Job is deleted. The result is stale while an earlier stage is
not done, and once another revision is desired.
"""

from dataclasses import replace
from typing import Any

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.conditions import VERIFIED, Condition
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import VerificationReason
from specdec.desired import measurement as desired
from specdec.pipeline import job
from specdec.pipeline.job import Done, Task
from specdec.pipeline.live_job import LiveJob
from specdec.pipeline.stage import Context, Outcome
from specdec.pipeline.stages import verification_result
from specdec.pipeline.stages.verification_result import Entry

SUSPENDED = "nothing is measured while spec.suspend is true"


def verification(context: Context) -> Outcome:
    """Verify each served revision once."""
    if (disabled := _disabled(context)) is not None:
        return disabled
    model, facts = context.model, context.facts
    task = _task(context)
    outdated = job.others(context, desired.VERIFY, task.job["metadata"]["name"])
    step = job.advance(context, task)
    if isinstance(step, Done):
        return Outcome(
            verification_result.conditions(model, step.result),
            replace(facts, verification_ended=True),
            proceed=True,
            delete=outdated,
            status={"speculation": step.result},
        )
    return Outcome(
        _unknown(step.cause),
        replace(facts, verification_ended=step.failed),
        proceed=True,
        apply=step.apply,
        delete=(*outdated, *step.delete),
        status=_stale_status(model),
        requeue_after=step.requeue_after,
    )


def while_stopped(context: Context) -> Outcome:
    """What to report while an earlier stage is not done: the last result is stale."""
    if (disabled := _disabled(context)) is not None:
        return disabled
    last = verification_result.last(context.model)
    if last is None:
        return Outcome((), context.facts, proceed=False)
    message = (
        f"measured at {last.get('measuredAt', 'an unknown time')} and counts again, or is "
        "repeated, when the desired revision serves"
    )
    conditions = _unknown(Cause(VerificationReason.STALE, message))
    return Outcome(conditions, context.facts, proceed=False, status=_stale_status(context.model))


def _disabled(context: Context) -> Outcome | None:
    """The outcome if the spec disables verification or has no speculation; otherwise None."""
    model = context.model
    if model.spec.verification.mode == "Disabled":
        conditions = _unknown(
            Cause(VerificationReason.NOT_RUN, "spec.verification.mode is Disabled")
        )
    elif not model.spec.speculation.speculates:
        cause = Cause(
            VerificationReason.METHOD_NONE,
            "spec.speculation.method is None: the target answers alone",
        )
        active, *rest = _unknown(cause)
        conditions = (replace(active, status="False"), *rest)
    else:
        return None
    outdated = job.others(context, desired.VERIFY, None)
    facts = replace(context.facts, verification_ended=True)
    return Outcome(conditions, facts, proceed=True, delete=outdated)


def _task(context: Context) -> Task[Entry]:
    model, facts = context.model, context.facts
    drafts = backends.method(model).draft_tokens(model) or 0
    plan_hash = desired.verification_hash(model, facts.repository, facts.image, drafts)
    image = context.images.operator
    last = verification_result.last(model)
    same = last is not None and last.get("planHash") == plan_hash
    return Task(
        job=job.with_spec_hash(desired.verify_job(model, plan_hash, facts.version, drafts, image)),
        parse=lambda live: _result(live, plan_hash),
        sections=("verification",),
        running=VerificationReason.VERIFYING,
        failure=VerificationReason.VERIFICATION_FAILED,
        activity="verifies the service",
        purpose="to verify the service",
        suspended=SUSPENDED,
        remembered=last if same else None,
        waits_for="" if facts.available else "Available",
    )


def _result(live: LiveJob, plan_hash: str) -> Entry | None:
    """The Job's result; None if it is for other servers or requests, or if the Job left none."""
    measured = live.result.verification
    if measured is None or measured.plan_hash != plan_hash:
        return None
    return verification_result.entry(measured)


def _stale_status(model: SpeculativeModel) -> dict[str, Any]:
    last = verification_result.last(model)
    return {} if last is None else {"speculation": verification_result.stale(last)}


def _unknown(cause: Cause) -> tuple[Condition, ...]:
    return tuple(Condition(kind, "Unknown", cause.reason, cause.message) for kind in VERIFIED)
