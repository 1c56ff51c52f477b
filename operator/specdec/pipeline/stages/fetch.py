"""ModelsFetched and Compatible: checkpoints on the volume, checked before any GPU is used."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specdec.api.cause import Cause
from specdec.api.checkpoint_facts import Fetched
from specdec.api.conditions import Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import CompatibilityReason, FetchReason
from specdec.backends.facts import Checkpoint
from specdec.desired import fetch as desired
from specdec.pipeline import job
from specdec.pipeline.job import Done, Task
from specdec.pipeline.job_results import Result, parsed
from specdec.pipeline.observed import Object, Ref
from specdec.pipeline.stage import Context, Outcome, stopped
from specdec.pipeline.validation import compatibility
from specdec.pipeline.validation.compatibility import Verdict
from specdec.pipeline.volume import volume_recovery


@dataclass(frozen=True)
class _Sources:
    """The fetched sources and their hashes by role, and the keys of engines on the volume."""

    fetched: Mapping[str, Fetched]
    hashes: Mapping[str, str]
    engines: frozenset[str]


def fetch(context: Context) -> Outcome:
    """Run the fetch Job unless its result is known, then check that the checkpoints fit."""
    if loss := volume_recovery.loss(
        context, FetchReason.CHECKPOINT_MISSING, FetchReason.CHECKPOINT_DAMAGED
    ):
        return _fetch_again(context, loss)
    manifest = job.with_spec_hash(
        desired.job(
            context.model,
            context.facts.volume,
            context.images.operator,
            context.images.fetch_networks,
        )
    )
    step = job.advance(context, _task(context, manifest))
    done = isinstance(step, Done)
    outdated = _outdated(context, manifest["metadata"]["name"], done=done)
    if isinstance(step, Done):
        return _check(context, step.result, outdated)
    if step.failed and isinstance(step.cause.reason, CompatibilityReason):
        return _refused(context, step.cause, outdated)
    return job.waiting(Type.MODELS_FETCHED, context.facts, step, outdated)


def _refused(context: Context, finding: Cause, delete: tuple[Ref, ...]) -> Outcome:
    """The Job refused the configurations by the rules of `compatibility`: it has no weights.

    A change of the spec that these rules read replaces the Job.
    """
    message = "no weights are downloaded, because configuration or tokenizer do not fit"
    fetched = Condition(Type.MODELS_FETCHED, "Unknown", FetchReason.NOT_FETCHED, message)
    refused = Condition(Type.COMPATIBLE, "False", finding.reason, finding.message)
    return Outcome((fetched, refused), context.facts, proceed=False, delete=delete)


def _task(context: Context, manifest: Object) -> Task[_Sources]:
    sources = _names(context.model)
    return Task(
        job=manifest,
        parse=lambda live: _sources(context, live.result),
        sections=("models", "engines"),
        running=FetchReason.FETCHING,
        failure=FetchReason.FETCH_FAILED,
        activity=f"fetches {sources}",
        purpose=f"to fetch {sources}",
        suspended="nothing is fetched while spec.suspend is true",
        remembered=_sources(context, Result()),
    )


def _fetch_again(context: Context, loss: volume_recovery.Loss) -> Outcome:
    """Forget every model: the next Job keeps what is on the volume and fetches the rest."""
    outcome = stopped(Type.MODELS_FETCHED, context.facts, loss.cause, delete=loss.fetch)
    return replace(outcome, delete_last=(loss.publish,), status={"models": []})


def _outdated(context: Context, name: str, *, done: bool) -> tuple[Ref, ...]:
    """Fetch Jobs to delete: running Jobs of other sources.

    Once the result is known, ended Jobs of other sources and a running Job of the desired sources
    are deleted too.
    """
    model, observed = context.model, context.observed
    running = [n for n in job.unfinished(observed, model, "fetch") if n != name or done]
    others = [n for n in job.own(observed, model, "fetch") if n != name and done]
    return tuple(job.ref(n) for n in sorted({*running, *others}))


def _sources(context: Context, result: Result) -> _Sources | None:
    """The desired sources: from a Job's result, else from the status; None if any is missing."""
    sources = desired.source_hashes(context.model, context.facts.volume)
    models = result.models.root if result.models else {}
    if not sources.keys() <= models.keys():
        models = _remembered(context.model, sources)
    if not sources.keys() <= models.keys():
        return None
    engines = frozenset(result.engines.root if result.engines else ())
    return _Sources({role: models[role] for role in sources}, sources, engines)


def _remembered(model: SpeculativeModel, sources: Mapping[str, str]) -> dict[str, Fetched]:
    """The entries of the status whose source has not changed, by role."""
    entries = [e for e in model.status.get("models", []) if sources.get(e["role"]) == e["source"]]
    results = {entry["role"]: parsed(Fetched, entry) for entry in entries}
    return {role: fetched for role, fetched in results.items() if fetched is not None}


def _check(context: Context, sources: _Sources, delete: tuple[Ref, ...]) -> Outcome:
    """Check that the checkpoints fit each other; a refusal stops the chain."""
    checkpoints = {
        role: Checkpoint(role, each.digest, each.revision, each.bytes, each.facts)
        for role, each in sources.fetched.items()
    }
    verdict = compatibility.judge(context.model, {r: c.facts for r, c in checkpoints.items()})
    size = sum(c.bytes for c in checkpoints.values())
    copies = _copies(context, checkpoints)
    fetched = Condition(
        Type.MODELS_FETCHED,
        "True",
        FetchReason.FETCHED,
        f"{_names(context.model)} on the volume ({size / 1e6:.1f} MB){copies}",
    )
    facts = replace(context.facts, checkpoints=checkpoints, engines_on_volume=sources.engines)
    return Outcome(
        (fetched, _compatible(context.model, verdict)),
        facts,
        proceed=not verdict.refused,
        delete=delete,
        status={"models": [_entry(role, sources, verdict) for role in sources.fetched]},
    )


def _copies(context: Context, checkpoints: Mapping[str, Checkpoint]) -> str:
    """The space that copies from other claims take; empty if no source lies on another claim."""
    sizes: dict[str, dict[str, int]] = {}
    for role, source in context.model.sources.items():
        if source.pvc is not None and source.pvc.claim_name != context.facts.volume.claim:
            copied = checkpoints[role]
            sizes.setdefault(source.pvc.claim_name, {})[copied.digest] = copied.bytes
    return "".join(
        f"; {sum(own.values()) / 1e6:.1f} MB of them are a copy from claim {claim}, which "
        "spec.storage.existingClaim would use in place"
        for claim, own in sizes.items()
    )


def _entry(role: str, sources: _Sources, verdict: Verdict) -> dict[str, Any]:
    """The status entry of a role, with the findings about it."""
    findings = [
        {"code": str(f.code), "severity": f.severity, "message": f.message}
        for f in verdict.findings
        if f.role == role
    ]
    entry = {"role": role, "source": sources.hashes[role], **sources.fetched[role].shown()}
    facts = entry["facts"] | ({"findings": findings} if findings else {})
    return {**entry, "facts": facts}


def _compatible(model: SpeculativeModel, verdict: Verdict) -> Condition:
    if verdict.refused:
        text = "; ".join(f.message for f in (*verdict.refused, *verdict.warnings))
        return Condition(Type.COMPATIBLE, "False", verdict.refused[0].code, text)
    if verdict.warnings:
        text = "; ".join(f"{f.code}: {f.message}" for f in verdict.warnings)
        return Condition(Type.COMPATIBLE, "True", CompatibilityReason.FITS_WITH_WARNINGS, text)
    return Condition(Type.COMPATIBLE, "True", CompatibilityReason.FITS, _fits(model))


def _fits(model: SpeculativeModel) -> str:
    if "draft" in model.models:
        return "draft and target share tokenizer, vocabulary and special tokens"
    if model.spec.speculation.heads is not None:
        return "the heads fit the target"
    return "there is no draft and there are no heads to compare with the target"


def _names(model: SpeculativeModel) -> str:
    """The sources in a sentence, as in "target, draft and heads"."""
    *first, last = (role.replace("-", " ") for role in model.sources)
    return f"{', '.join(first)} and {last}" if first else last
