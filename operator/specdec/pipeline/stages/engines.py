"""EnginesReady: a build Job for each engine that is not on the volume, all at the same time.

A prebuilt engine is fetched and needs no Job.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.conditions import BLOCKED, FAILED, Condition, Type
from specdec.api.reasons import CommonReason, EngineReason, ReadyReason
from specdec.backends.facts import Engine
from specdec.backends.protocol import EngineBuilder
from specdec.desired import engine as desired
from specdec.pipeline import job, live_job
from specdec.pipeline.job import Done, Pending, Task
from specdec.pipeline.job_results import Built, ImageContract, parsed
from specdec.pipeline.live_job import LiveJob
from specdec.pipeline.pods import diagnosis
from specdec.pipeline.pods.diagnosis import Progress
from specdec.pipeline.stage import POLL, Context, Outcome
from specdec.pipeline.stages import image_contract
from specdec.pipeline.volume import volume_recovery


@dataclass(frozen=True)
class _Build:
    """The state of one engine.

    `pending` is None if the engine is on the volume. `job` is None if the engine is prebuilt.
    """

    engine: Engine
    job: str | None
    pending: Pending | None = None
    progress: Progress | None = None
    seconds: int | None = None
    image: ImageContract | None = None


def engines(context: Context) -> Outcome:
    """Build every engine of the resource; the chain goes on when all are on the volume."""
    model = context.model
    loss = volume_recovery.loss(context, EngineReason.ENGINE_MISSING, EngineReason.ENGINE_DAMAGED)
    builds = _builds(context, loss)
    desired_engines = [build.engine for build in builds]
    current = {build.job for build in builds}
    outdated = [
        job.ref(name)
        for name in job.unfinished(context.observed, model, "engine")
        if name not in current
    ]
    pending = [b.pending for b in builds if b.pending]
    contract = image_contract.known(context, (build.image for build in builds))
    facts = replace(
        context.facts,
        engines={e.role: e for e in desired_engines},
        request_fields=image_contract.request_fields(contract),
    )
    return Outcome(
        (_condition(builds, image_contract.warning(contract)),),
        facts,
        proceed=not pending,
        apply=tuple(obj for step in pending for obj in step.apply),
        delete=(
            *outdated,
            *(loss.fetch if loss else ()),
            *(ref for step in pending for ref in step.delete),
        ),
        delete_last=(loss.publish,) if loss else (),
        status={
            **(_without_lost(context, desired_engines, loss) if loss else {}),
            "engines": [dict(_entry(b)) for b in builds],
            "plan": {"engineKeys": {e.role: e.key for e in desired_engines}},
            "imageContract": image_contract.shown(context, contract),
        },
        # A failed Job stays until a person deletes it, and the deletion is a watch event.
        requeue_after=POLL if any(not step.failed for step in pending) else None,
    )


def _builds(context: Context, loss: volume_recovery.Loss | None) -> list[_Build]:
    """The engines of the resource; none if the backend serves checkpoints as they are."""
    builder = backends.of(context.model).builder
    if builder is None:
        return []
    return [
        _lost(context, engine, loss)
        if loss and loss.concerns(engine.role)
        else _build(context, engine, builder)
        for engine in builder.engines(context.model, context.facts)
    ]


def _lost(context: Context, engine: Engine, loss: volume_recovery.Loss) -> _Build:
    """Forget the lost engine; the next reconcile builds or fetches it again."""
    cause = Cause(loss.cause.reason, f"{engine.role}: {loss.cause.message}")
    if engine.checkpoint is not None:
        return _Build(engine, None, Pending(cause))
    name = desired.job_name(engine.key, context.facts.volume)
    # A running Job belongs to another resource, which lost the same engine and builds it again.
    finished = live_job.find(context.observed, name).state in ("Complete", "Failed")
    return _Build(engine, name, Pending(cause, delete=(job.ref(name),) if finished else ()))


def _build(context: Context, engine: Engine, builder: EngineBuilder) -> _Build:
    if engine.checkpoint is not None:
        return _Build(engine, None)
    task = _task(context, engine, builder)
    name = task.job["metadata"]["name"]
    step = job.advance(context, task)
    if isinstance(step, Done):
        seconds = step.result.seconds
        rounded = None if seconds is None else round(seconds)
        return _Build(engine, name, seconds=rounded, image=step.result.image)
    cause = step.cause
    progress = diagnosis.last_progress(step.log) if cause.reason == EngineReason.BUILDING else None
    cause = Cause(cause.reason, f"{engine.role}: {cause.message}")
    return _Build(engine, name, replace(step, cause=cause), progress)


def _task(context: Context, engine: Engine, builder: EngineBuilder) -> Task[Built]:
    model, volume, role = context.model, context.facts.volume, engine.role
    image = builder.image_check and builder.image_check(context.facts.version)
    manifest = job.with_spec_hash(
        desired.job(
            model,
            engine.plan,
            volume,
            context.facts.image,
            builder.needs(model, engine),
            context.images.operator,
            checked=image is not None,
        )
    )
    remembered = _remembered(context, engine, manifest["metadata"]["name"])
    return Task(
        job=manifest,
        parse=lambda live: _built(live, remembered),
        sections=("engine",),
        running=EngineReason.BUILDING,
        failure=EngineReason.BUILD_FAILED,
        activity=f"builds the engine of the {role}",
        purpose=f"to build the engine of the {role}",
        suspended="the engine is not built while spec.suspend is true",
        remembered=remembered,
        inputs=(desired.config_map(model, engine.plan, volume, builder.scripts, image),),
        membership=desired.joined(model, engine.key, volume),
    )


def _built(live: LiveJob, remembered: Built | None) -> Built | None:
    """The result of a complete Job, which has built the engine even if it left no result."""
    if live.result.problem("engine"):
        return None
    return live.result.engine or remembered or Built()


def _remembered(context: Context, engine: Engine, name: str) -> Built | None:
    """The engine, if the status or the fetch Job's report lists it on this volume.

    The report does not count while a prune may delete the engine, or if a build Job is complete:
    then the result of that Job counts.
    """
    for entry in context.model.status.get("engines", []):
        same = entry.get("key") == engine.key and entry.get("job") == name
        if same and entry.get("state") == "Built":
            return parsed(Built, entry) or Built()
    complete = live_job.find(context.observed, name).state in ("Complete", "Ended")
    on_volume = engine.key[:16] in context.facts.engines_on_volume
    unchanged = not context.observed.pruning
    return Built() if on_volume and unchanged and not complete else None


def _without_lost(
    context: Context, desired_engines: Sequence[Engine], loss: volume_recovery.Loss
) -> dict[str, Any]:
    """The field `models` without lost prebuilt engines, so that they are fetched again."""
    prebuilt = (engine.role for engine in desired_engines if engine.checkpoint is not None)
    lost = {f"{role}-engine" for role in prebuilt if loss.concerns(role)}
    entries = context.model.status.get("models", [])
    return {"models": [e for e in entries if e.get("role") not in lost]} if lost else {}


def _condition(builds: list[_Build], warning: str) -> Condition:
    if not builds:
        message = "the backend serves checkpoints as they are: it needs no engine"
        return Condition(Type.ENGINES_READY, "True", EngineReason.BUILT, message)
    causes = sorted((b.pending.cause for b in builds if b.pending), key=_severity)
    if not causes:
        keys = ", ".join(
            f"{b.engine.role} {b.engine.key[:16]}" + (" (prebuilt)" if b.job is None else "")
            for b in builds
        )
        message = f"engines on the volume: {keys}{warning}"
        return Condition(Type.ENGINES_READY, "True", EngineReason.BUILT, message)
    texts = "; ".join(cause.message for cause in causes)
    message = f"{len(builds) - len(causes)} of {len(builds)} engines built; {texts}"
    return Condition(Type.ENGINES_READY, "False", causes[0].reason, message)


def _severity(cause: Cause) -> int:
    """Sort key of a cause: failed builds first, then blocked ones, then running ones."""
    order = (FAILED, BLOCKED, frozenset({EngineReason.BUILDING}))
    return next((i for i, reasons in enumerate(order) if cause.reason in reasons), len(order))


def _entry(build: _Build) -> Iterator[tuple[str, Any]]:
    """The fields of an engine's entry in the status."""
    yield "role", build.engine.role
    yield "key", build.engine.key
    yield "state", _state(build)
    if build.job is not None:
        yield "job", build.job
    if build.seconds is not None:
        yield "seconds", build.seconds
    if build.pending is not None:
        yield "progress", build.pending.cause.message
    if build.progress is not None:
        yield "phase", build.progress.phase
        yield "percent", build.progress.percent


def _state(build: _Build) -> str:
    if build.pending is None:
        return "Built" if build.job is not None else "Prebuilt"
    reason = build.pending.cause.reason
    if reason in (EngineReason.ENGINE_MISSING, EngineReason.ENGINE_DAMAGED):
        return "Queued"
    busy = (EngineReason.BUILDING, CommonReason.QUEUED, ReadyReason.SUSPENDED)
    return str(reason) if reason in busy else "Failed"
