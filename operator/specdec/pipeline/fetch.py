"""ModelsFetched and Compatible: checkpoints on the volume, looked at before any GPU is used."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specdec.api.cause import Cause
from specdec.api.conditions import Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Facts
from specdec.desired import fetch as desired
from specdec.pipeline import diagnosis, job_ladder, volume_recovery
from specdec.pipeline.job_results import Fetched, Result, parsed, result
from specdec.pipeline.observed import Ref
from specdec.pipeline.stage import POLL, Context, Outcome
from specdec.validation import compatibility
from specdec.validation.compatibility import Verdict

Entries = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class _Fetched:
    """What is known of the models: status entries by role, and engines seen on the volume."""

    entries: Entries
    engines: frozenset[str]


def fetch(context: Context) -> Outcome:
    """Run the fetch Job unless its results are known, then judge the pair."""
    model, observed, volume = context.model, context.observed, context.facts.volume
    if loss := volume_recovery.missing(context, "CheckpointMissing", "CheckpointDamaged"):
        return _lost(context, loss)
    images = context.images
    job = job_ladder.shaped(desired.job(model, volume, images.operator, images.fetch_networks))
    name = job["metadata"]["name"]
    state = job_ladder.look(observed, name)
    told = result(state.pods if state.state == "Complete" else ())
    fetched = _known(context, told)
    outdated = _outdated(context, name, known=fetched is not None)
    if fetched is not None:
        return _judge(context, fetched, outdated)
    if model.spec.suspend:
        words = Cause("Suspended", "nothing is fetched while spec.suspend is true")
        return _waiting(context.facts, words, delete=outdated, retry=None)
    if job_ladder.outdated(state, job, model):
        outdated = (*outdated, job_ladder.delete(name))
        words = Cause("Queued", f"Job {name} makes way for one with the changed settings")
        return _waiting(context.facts, words, delete=outdated)
    if state.state == "Absent":
        words = Cause("Queued", f"Job {name} is created to fetch {_what(model)}")
        return _waiting(context.facts, words, apply=(job,), delete=outdated)
    if problem := told.problem("models", "engines"):
        words = diagnosis.unread(name, problem)
        return _waiting(context.facts, words, delete=outdated, retry=None)
    return _unfinished(context.facts, state, _what(model), outdated)


def _lost(context: Context, loss: volume_recovery.Loss) -> Outcome:
    """Forget every model: the Job finds those that are there, and fetches what is not."""
    return replace(_waiting(context.facts, loss.words, delete=loss.jobs), status={"models": []})


def _outdated(context: Context, name: str, *, known: bool) -> tuple[Ref, ...]:
    """Jobs of other sources: those that still run, and all of them once the result is known."""
    model, observed = context.model, context.observed
    running = [n for n in job_ladder.unfinished(observed, model, "fetch") if n != name or known]
    others = [n for n in job_ladder.of(observed, model, "fetch") if n != name and known]
    return tuple(job_ladder.delete(n) for n in sorted({*running, *others}))


def _unfinished(
    facts: Facts, state: job_ladder.Work, what: str, outdated: tuple[Ref, ...]
) -> Outcome:
    if state.state == "Running":
        words = diagnosis.running(state.name, f"fetches {what}", "Fetching", state.pods, state.log)
        return _waiting(facts, words, delete=outdated)
    if state.state == "Failed":
        words = diagnosis.failed(state.name, state.job, state.pods, "FetchFailed")
        return _waiting(facts, words, delete=outdated, retry=None)
    if state.state == "Complete" and not state.pods:
        # The result went with the pod; running again finds the checkpoints in place.
        words = Cause("Queued", f"Job {state.name} lost its result with its pod and runs again")
        return _waiting(facts, words, delete=(*outdated, job_ladder.delete(state.name)))
    if state.state == "Complete":
        message = f"Job {state.name} left no result; to try again: kubectl delete job {state.name}"
        return _waiting(facts, Cause("FetchFailed", message), delete=outdated, retry=None)
    return _waiting(facts, Cause("Queued", f"Job {state.name} is being deleted"), delete=outdated)


def _known(context: Context, told: Result) -> _Fetched | None:
    """Results for the wanted sources: the Job's, else those the status remembers."""
    volume = context.facts.volume
    sources = desired.source_hashes(context.model, volume)
    engines = frozenset(told.engines.root) if told.engines else frozenset()
    models = told.models.root if told.models else {}
    if not all(role in models for role in sources):
        models = _remembered(context.model, sources)
    if not all(role in models for role in sources):
        return None
    # Findings are none of the facts, they are judged anew.
    entries = {
        role: {"role": role, "source": source, **models[role].shown()}
        for role, source in sources.items()
    }
    return _Fetched(entries, engines)


def _remembered(model: SpeculativeModel, sources: Mapping[str, str]) -> dict[str, Fetched]:
    """What the status has of these very sources, by role."""
    entries = [e for e in model.status.get("models", []) if sources.get(e["role"]) == e["source"]]
    found = {entry["role"]: parsed(Fetched, entry) for entry in entries}
    return {role: fetched for role, fetched in found.items() if fetched is not None}


def _judge(context: Context, fetched: _Fetched, delete: tuple[Ref, ...]) -> Outcome:
    entries = fetched.entries
    checkpoints = {
        role: Checkpoint(role, e["digest"], e["revision"], e["bytes"], e["facts"])
        for role, e in entries.items()
    }
    verdict = compatibility.judge(context.model, {r: c.facts for r, c in checkpoints.items()})
    size = sum(c.bytes for c in checkpoints.values())
    done = Condition(
        Type.MODELS_FETCHED,
        "True",
        "Fetched",
        f"{_what(context.model)} on the volume ({size / 1e6:.1f} MB)",
    )
    facts = replace(context.facts, checkpoints=checkpoints, engines_on_volume=fetched.engines)
    return Outcome(
        (done, _compatible(context.model, verdict)),
        facts,
        proceed=not verdict.refused,
        delete=delete,
        status={"models": [_noted(entry, verdict) for entry in entries.values()]},
    )


def _noted(entry: Mapping[str, Any], verdict: Verdict) -> dict[str, Any]:
    """The status entry of a role with what was found in it."""
    found = [
        {"code": f.code, "severity": f.severity, "message": f.message}
        for f in verdict.findings
        if f.role == entry["role"]
    ]
    facts = entry["facts"] | ({"findings": found} if found else {})
    return {**entry, "facts": facts}


def _compatible(model: SpeculativeModel, verdict: Verdict) -> Condition:
    if verdict.refused:
        text = "; ".join(f.message for f in (*verdict.refused, *verdict.warnings))
        return Condition(Type.COMPATIBLE, "False", verdict.refused[0].code, text)
    if verdict.warnings:
        text = "; ".join(f"{f.code}: {f.message}" for f in verdict.warnings)
        return Condition(Type.COMPATIBLE, "True", "FitsWithWarnings", text)
    return Condition(Type.COMPATIBLE, "True", "Fits", _fits(model))


def _fits(model: SpeculativeModel) -> str:
    if "draft" in model.models:
        return "draft and target share tokenizer, vocabulary and special tokens"
    if model.spec.speculation.heads is not None:
        return "the heads fit the target"
    return "the target stands alone"


def _waiting(
    facts: Facts,
    words: Cause,
    apply: tuple[Mapping[str, Any], ...] = (),
    delete: tuple[Ref, ...] = (),
    retry: float | None = POLL,
) -> Outcome:
    condition = Condition(Type.MODELS_FETCHED, "False", words.reason, words.message)
    return Outcome(
        (condition,), facts, proceed=False, apply=apply, delete=delete, requeue_after=retry
    )


def _what(model: SpeculativeModel) -> str:
    *first, last = (role.replace("-", " ") for role in model.sources)
    return f"{', '.join(first)} and {last}" if first else last
