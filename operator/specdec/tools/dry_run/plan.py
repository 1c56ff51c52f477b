"""Plan a resource: run the operator's own decisions on a simulated cluster.

`specdec plan` and `specdec render` call `make`; `summary` turns the result into JSON. Values that
only a cluster knows are placeholders. The digest of a checkpoint that is not given is a
placeholder, and so are the engine keys, which depend on it. The claim's uid is a placeholder, and
so are the names of Jobs and the repository's hash, which depend on it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.api import catalog, names
from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.api.conditions import MEASURED, Type
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import AvailableReason, FetchReason, ReadyReason
from specdec.api.source import Source
from specdec.backends.facts import Images
from specdec.desired import engine as engine_objects
from specdec.desired.fetch import without_weights
from specdec.jobs import inspection, tokenizer_difference, volume
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.result import JobError
from specdec.tools.dry_run import configuration, volume_size
from specdec.tools.dry_run.resource import InputError
from specdec.tools.dry_run.simulated_cluster import SimulatedCluster

Json = dict[str, Any]
LATER = "known after fetch"
ASSUMED = "assumed"
CHECKED = "checked"
PREBUILT = "prebuilt"
_SERVERS = ("Deployment", "LeaderWorkerSet")
# Conditions that only a cluster can decide, so they never refuse a resource.
_CLUSTER_CONDITIONS = (*MEASURED, Type.READY)


@dataclass(frozen=True)
class ResourcePlan:
    """The result of all reconciles of one resource.

    Attributes:
        name, namespace: of the resource.
        objects: all applied objects, in order.
        files: the model repository, path -> text; empty if the pipeline stops before it.
        status: the resource's final status.
        checkpoints: the origin of each digest by role of `SpeculativeModel.sources`: a given
            directory, or LATER.
        volume: the name of the claim for all files.
        volume_too_small: why the claim cannot hold the checkpoints; empty if it can, or if their
            sizes are not known.
        pairs: what else was published for the target; a hint, which refuses nothing.
    """

    name: str
    namespace: str
    objects: tuple[Json, ...]
    files: Mapping[str, str]
    status: Json
    checkpoints: Mapping[str, str]
    volume: str
    volume_too_small: str = ""
    pairs: tuple[catalog.Pair, ...] = ()

    def of(self, component: str, kind: str) -> list[Json]:
        """The objects of one component and kind."""
        return [
            obj
            for obj in self.objects
            if obj["kind"] == kind and obj["metadata"]["labels"].get(names.COMPONENT) == component
        ]

    @property
    def servers(self) -> dict[str, Json]:
        """The objects that run the serving pods, by name."""
        servers = [obj for obj in self.objects if obj["kind"] in _SERVERS]
        return {obj["metadata"]["name"]: obj for obj in servers}

    @property
    def refusal(self) -> str:
        """Why the operator would refuse the resource; empty if it would not."""
        for item in self.status["conditions"]:
            if item["status"] == "False" and _depends_on_resource(item):
                return f"{item['type']} would be False ({item['reason']}): {item['message']}"
        if self.volume_too_small:
            reason = FetchReason.VOLUME_FULL
            return f"{Type.MODELS_FETCHED} would be False ({reason}): {self.volume_too_small}"
        return ""

    def engines(self) -> list[tuple[Json, Json]]:
        """Each engine's status entry with the plan of its build, which is empty if prebuilt."""
        plans = {
            obj["metadata"]["name"]: json.loads(obj["data"][engine_objects.PLAN])
            for obj in self.of("engine", "ConfigMap")
        }
        return [
            (entry, plans.get(entry.get("job"), {})) for entry in self.status.get("engines", [])
        ]

    def basis(self, condition: str) -> str:
        """What a condition is based on: the resource, given checkpoints, or an assumption."""
        if condition in (Type.ACCEPTED, Type.MEMORY_FITS):
            return CHECKED
        if condition in (Type.MODELS_FETCHED, Type.COMPATIBLE):
            return LATER if LATER in self.checkpoints.values() else CHECKED
        return ASSUMED


def make(
    body: Json, images: Images, checkpoints: Mapping[str, Path] | None = None
) -> ResourcePlan:
    """Reconcile until nothing is left to do, as if every Job and pod succeeded.

    Args:
        body: the resource, as `resource.read` returns it.
        images: the images of the release, as in the operator's Deployment.
        checkpoints: local directories by role, which are inspected as by the fetch Job. A
            config.json file, or a folder that has one but no weights, only contains sizes.

    Raises:
        InputError: a checkpoint is given for a role that the resource lacks.
        JobError: this release cannot build a checkpoint.
    """
    given = {role: configuration.file(path) for role, path in (checkpoints or {}).items()}
    # A suspended resource is planned as if it had served before.
    model = SpeculativeModel.parse(body)
    cluster = SimulatedCluster({**body, "spec": {**body["spec"], "suspend": False}}, images)
    sources = model.sources
    for role in given.keys() - sources.keys():
        raise InputError(
            f"--checkpoint {role}: the resource has {' and '.join(sources)}, no {role}"
        )
    bare = without_weights(model)
    fetched = {
        role: _fetched(role, ArtifactKind.of(role, bare), source, given)
        for role, source in sources.items()
    }
    _compare_tokenizers(fetched, given)
    fetch_result = {"models": fetched, "engines": []}
    claim = names.claim_name(model)
    cluster.bind(uid=claim, size=model.spec.storage.size or "?")
    cluster.settle(lambda component: fetch_result if component == "fetch" else {})
    if model.spec.suspend:
        cluster.spec["suspend"] = True
        cluster.settle(lambda _: {})
    return ResourcePlan(
        name=model.metadata.name,
        namespace=model.metadata.namespace,
        objects=tuple(cluster.ever_applied.values()),
        files=repository(cluster.ever_applied),
        status=cluster.cr["status"],
        checkpoints={role: _digest_origin(given.get(role)) for role in sources},
        volume=claim,
        volume_too_small=volume_size.problem(model, fetched),
        pairs=_other_pairs(model),
    )


def _other_pairs(model: SpeculativeModel) -> tuple[catalog.Pair, ...]:
    """The rows of the catalogue about the target, without the pair that the resource uses."""
    repositories = {
        source.hugging_face.repo.lower()
        for source in model.sources.values()
        if source.hugging_face is not None
    }
    target = model.sources["target"].hugging_face
    method = model.spec.speculation.method
    return tuple(
        pair
        for pair in (catalog.of(target.repo) if target is not None else ())
        if pair.method != method or (pair.repository or pair.target).lower() not in repositories
    )


def repository(objects: Mapping[tuple[str, str], Json]) -> dict[str, str]:
    """The files that the publish Job copies, path -> text; `objects` are by kind and name."""
    for (kind, name), job in objects.items():
        if kind == "Job" and job["metadata"]["labels"][names.COMPONENT] == "publish":
            volumes = job["spec"]["template"]["spec"]["volumes"]
            items = next(v["configMap"]["items"] for v in volumes if v["name"] == "repository")
            data = objects["ConfigMap", name]["data"]
            return {item["path"]: data[item["key"]] for item in items}
    return {}


def _depends_on_resource(condition: Mapping[str, Any]) -> bool:
    """Whether only a change of the resource can make a condition True; simulated Jobs succeed."""
    if condition["type"] in _CLUSTER_CONDITIONS:
        return False
    return condition["reason"] not in (ReadyReason.SUSPENDED, AvailableReason.NOT_DEPLOYED)


def _digest_origin(given: Path | None) -> str:
    """The given directory, or else LATER, because a configuration file alone has no digest."""
    return str(given) if given is not None and not given.is_file() else LATER


def _fetched(role: str, kind: ArtifactKind, source: Source, given: Mapping[str, Path]) -> Json:
    """The fetch Job's result for a source: of the given directory, or a placeholder."""
    folder = given.get(role)
    if folder is None or folder.is_file():
        # Equal sources give equal placeholders, so that two plans can be compared.
        digest = names.digest({"placeholder": source.model_dump()})
        facts = configuration.facts(folder, kind) if folder else NO_FACTS
        weighs = kind in (ArtifactKind.CHECKPOINT, ArtifactKind.HEADS)
        size = configuration.stored_bytes(role, facts) if weighs else 0
        return {"digest": digest, "revision": "", "bytes": size, "facts": facts.shown()}
    if not folder.is_dir():
        raise InputError(f"--checkpoint {role}={folder} is not a folder: name one")
    try:
        facts, digest = inspection.inspect(folder, kind), volume.digest(folder, kind)
        size = volume.size(folder, kind)
    except JobError as error:
        raise JobError(error.reason, f"--checkpoint {role}={folder}: {error}") from error
    except OSError as error:
        raise InputError(f"--checkpoint {role}={folder} cannot be read ({error})") from error
    return {"digest": digest, "revision": digest[:12], "bytes": size, "facts": facts.shown()}


def _compare_tokenizers(fetched: Mapping[str, Json], given: Mapping[str, Path]) -> None:
    """Add to the facts of a draft what the fetch Job would find in both tokenizers."""
    facts = {role: CheckpointFacts.model_validate(each["facts"]) for role, each in fetched.items()}
    folders = {
        role: path if path.is_dir() else path.parent
        for role, path in given.items()
        if path.is_dir() or path.name == "config.json"
    }
    for role, each in tokenizer_difference.compared(facts, folders).items():
        fetched[role]["facts"] = each.shown()


def pod_templates(server: Json) -> Json:
    """The pod template of a Deployment, or those of leader and workers in a LeaderWorkerSet."""
    templates: Json = server["spec"].get("leaderWorkerTemplate") or server["spec"]["template"]
    return templates
