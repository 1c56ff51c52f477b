"""EnginesReady: one build Job for each engine that is not on the volume yet, all at once.

An engine that was fetched is there already: it gets no Job.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.conditions import BLOCKED, FAILED, Condition, Type
from specdec.backends.facts import Engine
from specdec.desired import engine as desired
from specdec.pipeline import diagnosis, job_ladder, volume_recovery
from specdec.pipeline.diagnosis import Progress
from specdec.pipeline.job_results import result
from specdec.pipeline.observed import Object, Ref
from specdec.pipeline.stage import POLL, Context, Outcome


@dataclass(frozen=True)
class _Build:
    """Where one engine stands; `words` is None when it is there, `job` when none builds it."""

    engine: Engine
    job: str | None
    words: Cause | None = None
    progress: Progress | None = None
    seconds: int | None = None
    apply: tuple[Object, ...] = ()
    delete: tuple[Ref, ...] = ()


def engines(context: Context) -> Outcome:
    """Want every engine of the wanted state; go on when all are built."""
    model = context.model
    strategy = backends.strategy(model.spec.runtime.backend)
    wanted = [
        strategy.engine(model, context.facts.checkpoints[role], context.facts)
        for role in model.models
    ]
    loss = volume_recovery.missing(context, "EngineMissing", "EngineDamaged")
    builds = [
        _lost(context, engine, loss) if loss and loss.of(engine.role) else _stand(context, engine)
        for engine in wanted
    ]
    keep = {build.job for build in builds}
    outdated = [
        job_ladder.delete(name)
        for name in job_ladder.unfinished(context.observed, model, "engine")
        if name not in keep
    ]
    waiting = [b.words for b in builds if b.words]
    facts = replace(context.facts, engines={e.role: e for e in wanted})
    return Outcome(
        (_condition(builds),),
        facts,
        proceed=not waiting,
        apply=tuple(obj for b in builds for obj in b.apply),
        delete=(*outdated, *(loss.jobs if loss else ()), *(r for b in builds for r in b.delete)),
        status={
            **(_forgotten(context, wanted, loss) if loss else {}),
            "engines": [_entry(b) for b in builds],
            "plan": {"engineKeys": {e.role: e.key for e in wanted}},
        },
        requeue_after=_retry(waiting),
    )


def _retry(waiting: list[Cause]) -> float | None:
    """Failed Jobs wait for a person, whose deletion is an event; all else is looked at again."""
    return POLL if any("kubectl delete job" not in words.message for words in waiting) else None


def _stand(context: Context, engine: Engine) -> _Build:
    return _Build(engine, None) if engine.checkpoint is not None else _build(context, engine)


def _lost(context: Context, engine: Engine, loss: volume_recovery.Loss) -> _Build:
    """Forget what is known of an engine; the next reconcile builds or fetches it again."""
    words = Cause(loss.words.reason, f"{engine.role}: {loss.words.message}")
    if engine.checkpoint is not None:
        return _Build(engine, None, words)
    state = job_ladder.look(context.observed, desired.job_name(engine.key, context.facts.volume))
    # One that runs is another resource's, which has lost the same engine and builds it.
    jobs = (job_ladder.delete(state.name),) if state.state in ("Complete", "Failed") else ()
    return _Build(engine, state.name, words, delete=jobs)


def _build(context: Context, engine: Engine) -> _Build:
    model, volume = context.model, context.facts.volume
    name = desired.job_name(engine.key, volume)
    state = job_ladder.look(context.observed, name)
    told = result(state.pods if state.state == "Complete" else ())
    known = _remembered(context, engine, name)
    if known is not None or state.state == "Complete":
        seconds = told.engine.seconds if told.engine else (known or {}).get("seconds")
        problem = told.problem("engine") if known is None else None
        words = diagnosis.unread(name, problem) if problem else None
        return _Build(engine, name, words, seconds=None if seconds is None else round(seconds))
    if engine.key[:16] in context.facts.engines_on_volume:
        return _Build(engine, name)
    if model.spec.suspend:
        words = Cause("Suspended", f"engine of the {engine.role} is not built while suspended")
        return _Build(engine, name, words)
    return _job(context, engine, state)


def _job(context: Context, engine: Engine, state: job_ladder.Work) -> _Build:
    model, volume = context.model, context.facts.volume
    strategy = backends.strategy(model.spec.runtime.backend)
    job = job_ladder.shaped(
        desired.job(model, engine.plan, volume, context.facts.image, _needs(context, engine))
    )
    files = desired.config_map(model, engine.plan, volume, strategy.scripts())
    name, role = state.name, engine.role
    if state.state == "Deleting":
        return _Build(engine, name, Cause("Queued", f"{role}: Job {name} is being deleted"))
    if job_ladder.outdated(state, job, model):
        words = Cause("Queued", f"{role}: Job {name} makes way for one with the changed settings")
        return _Build(engine, name, words, delete=(job_ladder.delete(name),))
    if state.state == "Absent":
        words = Cause("Queued", f"{role}: Job {name} is created")
        return _Build(engine, name, words, apply=(files, job))
    # A Job that another resource made is joined; one that is ours already is left as it is.
    join = (
        ()
        if job_ladder.belongs(state.job, model)
        else (desired.joined(model, engine.key, volume),)
    )
    if state.state == "Failed":
        words = diagnosis.failed(name, state.job, state.pods, "BuildFailed")
    else:
        doing = f"builds the engine of the {role}"
        words = diagnosis.running(name, doing, "Building", state.pods, state.log)
    far = diagnosis.told(state.log) if words.reason == "Building" else None
    words = Cause(words.reason, f"{role}: {words.message}")
    return _Build(engine, name, words, far, apply=(files, *join))


def _needs(context: Context, engine: Engine) -> desired.Needs:
    """GPUs and memory of a build, by the devices it is for and the checkpoints it reads."""
    model, checkpoints = context.model, context.facts.checkpoints
    devices = len(backends.strategy(model.spec.runtime.backend).ranks(model).devices[engine.role])
    read = [engine.role, *(["heads"] if engine.plan.get("heads") else [])]
    return desired.needs(engine.plan, devices, sum(checkpoints[role].bytes for role in read))


def _remembered(context: Context, engine: Engine, job: str) -> Mapping[str, Any] | None:
    """The status entry that says this very engine is built on this very volume."""
    for entry in context.model.status.get("engines", []):
        same = entry.get("key") == engine.key and entry.get("job") == job
        if same and entry.get("state") == "Built":
            return dict(entry)
    return None


def _forgotten(
    context: Context, wanted: Sequence[Engine], loss: volume_recovery.Loss
) -> dict[str, Any]:
    """Prebuilt engines out of the status' models: what it does not remember is fetched again."""
    prebuilt = (engine.role for engine in wanted if engine.checkpoint is not None)
    gone = {f"{role}-engine" for role in prebuilt if loss.of(role)}
    entries = context.model.status.get("models", [])
    return {"models": [e for e in entries if e.get("role") not in gone]} if gone else {}


def _condition(builds: list[_Build]) -> Condition:
    waiting = [b.words for b in builds if b.words]
    if not waiting:
        keys = ", ".join(
            f"{b.engine.role} {b.engine.key[:16]}" + (" (prebuilt)" if b.job is None else "")
            for b in builds
        )
        return Condition(Type.ENGINES_READY, "True", "Built", f"engines on the volume: {keys}")
    worst = min(waiting, key=_rank)
    done = len(builds) - len(waiting)
    texts = "; ".join(words.message for words in sorted(waiting, key=_rank))
    message = f"{done} of {len(builds)} engines built; {texts}"
    return Condition(Type.ENGINES_READY, "False", worst.reason, message)


def _rank(words: Cause) -> int:
    """What needs a person comes first, then what blocks, then what runs."""
    order = (FAILED, BLOCKED, frozenset({"Building"}))
    return next((i for i, reasons in enumerate(order) if words.reason in reasons), len(order))


def _entry(build: _Build) -> dict[str, Any]:
    return dict(_fields(build))


def _fields(build: _Build) -> Iterator[tuple[str, Any]]:
    yield "role", build.engine.role
    yield "key", build.engine.key
    yield "state", _state(build)
    if build.job is not None:
        yield "job", build.job
    if build.seconds is not None:
        yield "seconds", build.seconds
    if build.words is not None:
        yield "progress", build.words.message
    if build.progress is not None:
        yield "phase", build.progress.phase
        yield "percent", build.progress.percent


def _state(build: _Build) -> str:
    words = build.words
    if words is None:
        return "Built" if build.job is not None else "Prebuilt"
    if words.reason in ("EngineMissing", "EngineDamaged"):
        return "Queued"
    return words.reason if words.reason in ("Building", "Queued", "Suspended") else "Failed"
