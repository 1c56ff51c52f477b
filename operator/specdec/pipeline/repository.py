"""RepositoryReady: the rendered model repository, published on the volume by a Job."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from specdec import backends
from specdec.api import names
from specdec.api.cause import Cause
from specdec.api.conditions import Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Facts
from specdec.desired import repository as desired
from specdec.pipeline import diagnosis, job_ladder, volume_recovery
from specdec.pipeline.observed import Object, Ref
from specdec.pipeline.stage import POLL, Context, Outcome
from specdec.triton.repository import RepositoryPlan, libraries, render

# Seconds: no event comes when a server that starts finds damage.
_CHECK = 30.0


def repository(context: Context) -> Outcome:
    """Render, hand the files to the publish Job, and go on when they are on the volume."""
    model = context.model
    strategy = backends.strategy(model.spec.runtime.backend)
    try:
        files = _files(strategy.repositories(model, context.facts))
        revision = desired.revision(files, _expected(context), context.facts.volume)
        kept = _checkpoints(context, files)
        config = desired.config_map(model, revision, files, _expected(context), kept)
    except ValueError as error:
        return _stopped(context.facts, Cause("InvalidSpec", str(error)), retry=None)
    facts = replace(context.facts, repository=revision)
    count = len(files) + len(libraries(files))
    outdated = _outdated(context, desired.job_name(model, revision))
    if (doubt := volume_recovery.doubt(context, revision)) is not None:
        return _again(facts, model, revision, doubt, outdated)
    if model.status.get("repository", {}).get("hash") == revision:
        checked = model.status["repository"].get("checkedAt")
        published = _published(facts, revision, count, (config,), outdated, checked)
        return replace(
            published,
            requeue_after=_CHECK if volume_recovery.starting(context, revision) else None,
        )
    if model.spec.suspend:
        words = Cause("Suspended", "nothing is published while spec.suspend is true")
        return _stopped(facts, words, delete=outdated, retry=None)
    volume, image = facts.volume, context.images.operator
    again = "checkedAt" in model.status.get("repository", {})
    # What is published once more may have damage that neither size nor time shows.
    content = again and "hash" not in model.status["repository"]
    job = job_ladder.shaped(
        desired.job(model, revision, list(files), volume, image, content=content)
    )
    state = job_ladder.look(context.observed, job["metadata"]["name"])
    if state.state == "Complete":
        # Whatever ended before this look needs no other one.
        checked = volume_recovery.stamp(context) if again else None
        return _published(facts, revision, count, (config,), outdated, checked)
    if job_ladder.outdated(state, job, model):
        words = Cause("Queued", f"Job {state.name} makes way for one with the changed settings")
        return _stopped(facts, words, delete=(*outdated, job_ladder.delete(state.name)))
    if state.state == "Absent":
        words = Cause("Queued", f"Job {state.name} is created to publish {count} files")
        return _stopped(facts, words, (config, job), outdated)
    return _unfinished(facts, state, config, outdated)


def _files(plans: Mapping[str, RepositoryPlan]) -> dict[str, str]:
    """The files of all servers' repositories, each server's below its folder."""
    return {
        f"{folder}/{path}" if folder else path: text
        for folder, plan in plans.items()
        for path, text in _render(plan).items()
    }


@lru_cache(maxsize=16)
def _render(plan: RepositoryPlan) -> Mapping[str, str]:
    return render(plan)


def _unfinished(
    facts: Facts, state: job_ladder.Work, config: Object, outdated: tuple[Ref, ...]
) -> Outcome:
    if state.state == "Deleting":
        words = Cause("Queued", f"Job {state.name} is being deleted")
        return _stopped(facts, words, delete=outdated)
    if state.state == "Failed":
        words = diagnosis.failed(state.name, state.job, state.pods, "PublishFailed")
        return _stopped(facts, words, (config,), outdated, retry=None)
    doing = "publishes the model repository"
    words = diagnosis.running(state.name, doing, "Publishing", state.pods)
    return _stopped(facts, words, (config,), outdated)


def _expected(context: Context) -> list[dict[str, Any]]:
    """What the publish Job has to find in each engine's directory before it publishes."""
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


def _checkpoints(context: Context, files: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Where each checkpoint lies, and whether servers read it too: its tokenizer."""
    return {
        role: {"path": one.path, "served": any(one.path in text for text in files.values())}
        for role, one in context.facts.checkpoints.items()
        if not role.endswith("-engine")
    }


def _again(
    facts: Facts,
    model: SpeculativeModel,
    revision: str,
    doubt: volume_recovery.Doubt,
    old: tuple[Ref, ...],
) -> Outcome:
    """Forget that it was published: the Job looks at the volume once more."""
    again = job_ladder.delete(desired.job_name(model, revision))
    outcome = _stopped(facts, doubt.words, delete=(*old, again))
    return replace(outcome, status={"repository": {"checkedAt": doubt.at}})


def _outdated(context: Context, current: str) -> tuple[Ref, ...]:
    """Publish Jobs and ConfigMaps that are neither wanted nor served."""
    model, observed = context.model, context.observed
    keep = {current}
    for live in (*observed.deployments.values(), *filter(None, [observed.group])):
        served = live["metadata"].get("annotations", {})
        if names.REPOSITORY in served:
            keep.add(desired.job_name(model, served[names.REPOSITORY]))
    kinds = (("batch/v1", "Job", observed.jobs), ("v1", "ConfigMap", observed.config_maps))
    return tuple(
        Ref(version, kind, name)
        for version, kind, objects in kinds
        for name, obj in sorted(objects.items())
        if name not in keep and _is_mine(obj, model.metadata.name)
    )


def _is_mine(obj: Object, name: str) -> bool:
    labels = obj["metadata"].get("labels", {})
    gone = obj["metadata"].get("deletionTimestamp")
    mine = labels.get(names.MODEL) == name and labels.get(names.COMPONENT) == "publish"
    return mine and not gone


def _published(
    facts: Facts,
    revision: str,
    files: int,
    apply: tuple[Object, ...],
    delete: tuple[Ref, ...],
    checked: str | None,
) -> Outcome:
    at = {} if checked is None else {"checkedAt": checked}
    message = f"model repository {revision[:16]} with {files} files is on the volume"
    return Outcome(
        (Condition(Type.REPOSITORY_READY, "True", "Published", message),),
        facts,
        proceed=True,
        apply=apply,
        delete=delete,
        status={"repository": {"hash": revision, "files": files, **at}},
    )


def _stopped(
    facts: Facts,
    words: Cause,
    apply: tuple[Object, ...] = (),
    delete: tuple[Ref, ...] = (),
    retry: float | None = POLL,
) -> Outcome:
    condition = Condition(Type.REPOSITORY_READY, "False", words.reason, words.message)
    return Outcome(
        (condition,), facts, proceed=False, apply=apply, delete=delete, requeue_after=retry
    )
