"""RepositoryReady: the rendered model repository, published on the volume by a Job.

`status.repository` has `hash` while the repository counts as published. When a server reports
damaged files, or ends while it loads, the operator removes `hash` and sets `checkedAt` to the
present time. The next publish Job then compares the contents of files. After it, the operator sets
`hash` again, and `checkedAt` to the time of that reconcile.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from specdec import backends
from specdec.api import names
from specdec.api.cause import Cause
from specdec.api.conditions import Condition, Type
from specdec.api.reasons import (
    AcceptedReason,
    EngineReason,
    FetchReason,
    Reason,
    RepositoryReason,
)
from specdec.desired import repository as desired
from specdec.pipeline import job
from specdec.pipeline.job import Done, Task
from specdec.pipeline.live_job import LiveJob
from specdec.pipeline.observed import Object, Ref
from specdec.pipeline.stage import Context, Outcome, stopped
from specdec.pipeline.volume import volume_recovery
from specdec.triton.repository import libraries

# Seconds. The operator polls, because a server that finds damaged files at its start causes no
# watch event.
_CHECK = 30.0
# The condition of files that the publish Job cannot read, by the reason that it reports.
_UNREADABLE: Mapping[Reason, Type] = {
    FetchReason.CHECKPOINT_UNREADABLE: Type.MODELS_FETCHED,
    EngineReason.ENGINE_UNREADABLE: Type.ENGINES_READY,
}


@dataclass(frozen=True)
class _Rendered:
    """A rendered repository: hash, files, and the ConfigMap that takes them to the publish Job."""

    hash: str
    files: Mapping[str, str]
    config_map: Object

    @property
    def count(self) -> int:
        """The number of files, with the libraries that are not in the ConfigMap."""
        return len(self.files) + len(libraries(self.files))


def repository(context: Context) -> Outcome:
    """Render the files and publish them by a Job, unless they are on the volume already."""
    try:
        rendered = _rendered(context)
    except ValueError as error:
        cause = Cause(AcceptedReason.INVALID_SPEC, str(error))
        return stopped(Type.REPOSITORY_READY, context.facts, cause, requeue_after=None)
    context = replace(context, facts=replace(context.facts, repository=rendered.hash))
    outdated = _outdated(context, desired.job_name(context.model, rendered.hash))
    if (check := volume_recovery.check_due(context, rendered.hash)) is not None:
        return _publish_again(context, rendered, check, outdated)
    status = context.model.status.get("repository", {})
    if status.get("hash") == rendered.hash:
        published = _published(context, rendered, outdated, status.get("checkedAt"))
        starting = volume_recovery.may_report_damage(context, rendered.hash)
        return replace(published, requeue_after=_CHECK if starting else None)
    step = job.advance(context, _task(context, rendered))
    if isinstance(step, Done):
        # A server that ended before this moment is no reason for another check.
        checked = volume_recovery.timestamp(context) if "checkedAt" in status else None
        return _published(context, rendered, outdated, checked)
    outcome = job.waiting(Type.REPOSITORY_READY, context.facts, step, outdated)
    if kind := _UNREADABLE.get(step.cause.reason):
        # The earlier stage knows only that the files were fetched or built.
        unreadable = replace(outcome.conditions[0], type=kind)
        outcome = replace(outcome, conditions=(unreadable, *outcome.conditions))
    return outcome


def revision(context: Context) -> str | None:
    """The desired revision once the engines are planned, built or not; else None."""
    if not context.facts.engines:
        return None
    try:
        return _rendered(context).hash
    except ValueError:
        return None


def _rendered(context: Context) -> _Rendered:
    model = context.model
    files = _files(context)
    engines = _expected_engines(context)
    revision = desired.content_hash(files, engines, context.facts.volume)
    checkpoints = _expected_checkpoints(context, files)
    config_map = desired.config_map(model, revision, files, engines, checkpoints)
    return _Rendered(revision, files, config_map)


def _task(context: Context, rendered: _Rendered) -> Task[Literal[True]]:
    model = context.model
    status = model.status.get("repository", {})
    manifest = desired.job(
        model,
        rendered.hash,
        list(rendered.files),
        context.facts.volume,
        context.images.operator,
        # In a check of the volume, compare contents: a damaged file may keep its size and time.
        content="checkedAt" in status and "hash" not in status,
    )

    def parse(_: LiveJob) -> Literal[True] | None:
        # While suspended, the operator does not use the result of a complete Job either.
        return None if model.spec.suspend else True

    return Task(
        job=job.with_spec_hash(manifest),
        parse=parse,
        sections=(),
        running=RepositoryReason.PUBLISHING,
        failure=RepositoryReason.PUBLISH_FAILED,
        activity="publishes the model repository",
        purpose=f"to publish {rendered.count} files",
        suspended="nothing is published while spec.suspend is true",
        inputs=(rendered.config_map,),
    )


def _files(context: Context) -> Mapping[str, str]:
    return backends.of(context.model).repository(context.model, context.facts)


def _expected_engines(context: Context) -> list[dict[str, Any]]:
    """What the publish Job checks of each engine's directory before it publishes."""
    models = context.model.models
    return [
        {
            "role": engine.role,
            "key": engine.key,
            "path": engine.path,
            "prebuilt": engine.checkpoint is not None,
            "version": context.facts.version,
            "minDraftLen": engine.plan["maxDraftTokens"],
            "speculativeDecodingMode": engine.plan["speculativeDecodingMode"],
            "tensorParallel": models[engine.role].parallelism.tensor,
            "pipelineParallel": models[engine.role].parallelism.pipeline,
            "minBatchSize": models[engine.role].limits.max_batch_size,
            "minSeqLen": models[engine.role].limits.max_seq_len,
            "sameVocabulary": context.model.spec.checks.vocabulary == "Enforce",
        }
        for engine in context.facts.engines.values()
    ]


def _expected_checkpoints(context: Context, files: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The path of each checkpoint, and whether the servers read its tokenizer."""
    return {
        role: {
            "path": checkpoint.path,
            "served": any(checkpoint.path in text for text in files.values()),
        }
        for role, checkpoint in context.facts.checkpoints.items()
        if not role.endswith("-engine")
    }


def _publish_again(
    context: Context,
    rendered: _Rendered,
    check: volume_recovery.VolumeCheck,
    outdated: tuple[Ref, ...],
) -> Outcome:
    """Forget that the repository is published: the next Job checks the volume again."""
    publish = job.ref(desired.job_name(context.model, rendered.hash))
    outcome = stopped(
        Type.REPOSITORY_READY, context.facts, check.cause, delete=(*outdated, publish)
    )
    return replace(outcome, status={"repository": {"checkedAt": check.at}})


def _outdated(context: Context, current: str) -> tuple[Ref, ...]:
    """Publish Jobs and ConfigMaps of revisions that are neither desired nor served."""
    model, observed = context.model, context.observed
    keep = {current}
    for live in (*observed.deployments.values(), *filter(None, [observed.group])):
        annotations = live["metadata"].get("annotations", {})
        if names.REPOSITORY in annotations:
            keep.add(desired.job_name(model, annotations[names.REPOSITORY]))
    kinds = (("batch/v1", "Job", observed.jobs), ("v1", "ConfigMap", observed.config_maps))
    return tuple(
        Ref(version, kind, name)
        for version, kind, objects in kinds
        for name, item in sorted(objects.items())
        if name not in keep and _is_publish_object(item, model.metadata.name)
    )


def _is_publish_object(item: Object, model_name: str) -> bool:
    """Whether a Job or ConfigMap publishes for this resource and is not being deleted."""
    labels = item["metadata"].get("labels", {})
    deleted = item["metadata"].get("deletionTimestamp")
    mine = labels.get(names.MODEL) == model_name and labels.get(names.COMPONENT) == "publish"
    return mine and not deleted


def _published(
    context: Context, rendered: _Rendered, outdated: tuple[Ref, ...], checked: str | None
) -> Outcome:
    """The repository is on the volume; `checked` is the time of the last check of the volume."""
    message = f"model repository {rendered.hash[:16]} with {rendered.count} files is on the volume"
    entry = {"hash": rendered.hash, "files": rendered.count}
    return Outcome(
        (Condition(Type.REPOSITORY_READY, "True", RepositoryReason.PUBLISHED, message),),
        context.facts,
        proceed=True,
        apply=(rendered.config_map,),
        delete=outdated,
        status={"repository": entry | ({} if checked is None else {"checkedAt": checked})},
    )
