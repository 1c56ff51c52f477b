"""What the operator would make of a resource: its own decisions, on a cluster in memory.

What only a cluster knows stands as a placeholder and is said to be one: digests of checkpoints
that nobody gave, and with them the keys of engines and the hash of the repository; the uid of the
claim, and with it the names of Jobs.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.api import names
from specdec.api.conditions import MEASURED, Type
from specdec.api.model import SpeculativeModel
from specdec.api.source import Source
from specdec.backends.facts import Images
from specdec.desired import engine as engine_objects
from specdec.desired.fetch import without_weights
from specdec.desired.pod import GPU
from specdec.dry_run import configuration
from specdec.dry_run.resource import InputError
from specdec.dry_run.simulated_cluster import World
from specdec.jobs import inspection, volume
from specdec.jobs.kind import Kind
from specdec.jobs.result import JobError
from specdec.triton import start

Json = dict[str, Any]
LATER = "known after fetch"
ASSUMED = "assumed"
CHECKED = "checked"
PREBUILT = "prebuilt"
_SERVERS = ("Deployment", "LeaderWorkerSet")
# What a cluster alone can tell: nothing of it refuses a resource.
_LAST = (*MEASURED, Type.READY)


@dataclass(frozen=True)
class Plan:
    """One resource thought through to its end.

    Attributes:
        name, namespace: of the resource.
        objects: everything applied on the way, in that order.
        files: the model repository, path -> text; empty where it was not reached.
        status: the resource's status at the end.
        checkpoints: by role of `SpeculativeModel.sources` where its digest comes from: a folder
            that was given, or LATER.
        volume: the claim that everything lies on.
    """

    name: str
    namespace: str
    objects: tuple[Json, ...]
    files: Mapping[str, str]
    status: Json
    checkpoints: Mapping[str, str]
    volume: str

    def of(self, component: str, kind: str) -> list[Json]:
        """The objects of one component and kind."""
        return [
            obj
            for obj in self.objects
            if obj["kind"] == kind and obj["metadata"]["labels"].get(names.COMPONENT) == component
        ]

    @property
    def servers(self) -> dict[str, Json]:
        """What runs the serving pods, by name, where it was reached."""
        found = [obj for obj in self.objects if obj["kind"] in _SERVERS]
        return {obj["metadata"]["name"]: obj for obj in found}

    @property
    def refusal(self) -> str:
        """Why the operator would refuse the resource as it stands; empty when it would not."""
        for one in self.status["conditions"]:
            if one["status"] == "False" and one["type"] not in _LAST and _final(one):
                return f"{one['type']} would be False ({one['reason']}): {one['message']}"
        return ""

    def engines(self) -> list[tuple[Json, Json]]:
        """Each engine's status entry with the plan its build is given; a prebuilt one has none."""
        plans = {
            obj["metadata"]["name"]: json.loads(obj["data"][engine_objects.PLAN])
            for obj in self.of("engine", "ConfigMap")
        }
        return [
            (entry, plans.get(entry.get("job"), {})) for entry in self.status.get("engines", [])
        ]

    def basis(self, condition: str) -> str:
        """What a condition rests on: the resource, given checkpoints, or mere assumption."""
        if condition in (Type.ACCEPTED, Type.MEMORY_FITS):
            return CHECKED
        if condition in (Type.MODELS_FETCHED, Type.COMPATIBLE):
            return LATER if LATER in self.checkpoints.values() else CHECKED
        return ASSUMED


def make(body: Json, images: Images, checkpoints: Mapping[str, Path] | None = None) -> Plan:
    """Decide until nothing is left to do, as if every Job and pod did well.

    Args:
        body: the resource as `resource.read` gives it.
        images: the release's images, as the operator's Deployment names them.
        checkpoints: local folders by role, to be looked at as the fetch Job would; or a
            config.json, which tells sizes and nothing else.

    Raises:
        InputError: a checkpoint is given for a model that the resource has not.
        JobError: a checkpoint cannot be built by this release.
    """
    given = dict(checkpoints or {})
    # A suspended resource is thought through as if it had served before.
    model = SpeculativeModel.parse(body)
    world = World({**body, "spec": {**body["spec"], "suspend": False}}, images)
    sources = model.sources
    for role in given.keys() - sources.keys():
        raise InputError(
            f"--checkpoint {role}: the resource has {' and '.join(sources)}, no {role}"
        )
    bare = without_weights(model)
    fetched = {
        role: _fetched(role, Kind.of(role, bare), source, given)
        for role, source in sources.items()
    }
    told = {"models": fetched, "engines": []}
    claim = names.claim_name(model)
    world.bind(uid=claim, size=model.spec.storage.size or "?")
    world.settle(lambda component: told if component == "fetch" else {})
    if model.spec.suspend:
        world.spec["suspend"] = True
        world.settle(lambda _: {})
    return Plan(
        name=model.metadata.name,
        namespace=model.metadata.namespace,
        objects=tuple(world.ever_applied.values()),
        files=repository(world.ever_applied),
        status=world.cr["status"],
        checkpoints={r: _basis(given.get(r)) for r in sources},
        volume=claim,
    )


def repository(objects: Mapping[tuple[str, str], Json]) -> dict[str, str]:
    """The files as the publish Job's volume shows them; `objects` are by kind and name."""
    for (kind, name), job in objects.items():
        if kind == "Job" and job["metadata"]["labels"][names.COMPONENT] == "publish":
            volumes = job["spec"]["template"]["spec"]["volumes"]
            items = next(v["configMap"]["items"] for v in volumes if v["name"] == "repository")
            data = objects["ConfigMap", name]["data"]
            return {item["path"]: data[item["key"]] for item in items}
    return {}


def _final(condition: Mapping[str, Any]) -> bool:
    """Whether only a change of the resource mends it: with every Job well, all else does not."""
    return condition["reason"] not in ("Suspended", "NotDeployed")


def _basis(given: Path | None) -> str:
    """A folder; nobody has a digest of what only a configuration tells of."""
    return str(given) if given is not None and not given.is_file() else LATER


def _fetched(role: str, kind: Kind, source: Source, given: Mapping[str, Path]) -> Json:
    """What the fetch Job would say of a source: of its folder, or a placeholder."""
    folder = given.get(role)
    if folder is None or folder.is_file():
        # Equal sources give equal placeholders, so that two plans can be compared.
        digest = names.digest({"placeholder": source.model_dump()})
        facts = configuration.facts(folder) if folder else {}
        return {"digest": digest, "revision": "", "bytes": 0, "facts": facts}
    if not folder.is_dir():
        raise InputError(f"--checkpoint {role}={folder} is no folder: name a checkpoint's folder")
    try:
        facts, digest = inspection.inspect(folder, kind), volume.digest(folder, kind)
        size = volume.size(folder, kind)
    except JobError as error:
        raise JobError(error.reason, f"--checkpoint {role}={folder}: {error}") from error
    except OSError as error:
        raise InputError(f"--checkpoint {role}={folder} cannot be read ({error})") from error
    return {"digest": digest, "revision": digest[:12], "bytes": size, "facts": facts}


def summary(plan: Plan) -> Json:
    """The plan as JSON, without the texts of files and manifests."""
    return {
        "resource": {"name": plan.name, "namespace": plan.namespace},
        "refused": plan.refusal,
        "stages": [_stage(plan, one) for one in plan.status["conditions"]],
        "plan": plan.status.get("plan", {}),
        "claim": plan.volume,
        "checkpoints": [
            {"role": model["role"], "digest": model["digest"], "basis": _source(plan, model)}
            for model in plan.status.get("models", [])
        ],
        "engines": [_engine(plan, entry, build) for entry, build in plan.engines()],
        "jobs": [_job(obj) for obj in plan.objects if obj["kind"] == "Job"],
        "repository": {
            "hash": plan.status.get("repository", {}).get("hash", ""),
            "files": [
                {
                    "path": path,
                    "bytes": len(text.encode()),
                    "sha256": hashlib.sha256(text.encode()).hexdigest(),
                }
                for path, text in plan.files.items()
            ],
        },
        "servers": [_server(name, obj) for name, obj in plan.servers.items()],
        "service": [
            {"name": obj["metadata"]["name"], "ports": obj["spec"]["ports"]}
            for obj in plan.of("network", "Service")
        ],
        "url": plan.status.get("url", ""),
        "endpoints": plan.status.get("endpoints", []),
    }


def _stage(plan: Plan, condition: Json) -> Json:
    shown = {key: condition[key] for key in ("type", "status", "reason", "message")}
    basis = plan.basis(condition["type"])
    if basis == LATER and condition["status"] == "True":
        shown |= {
            "status": "Unknown",
            "reason": "Waiting",
            "message": "known after fetch; --checkpoint ROLE=DIR looks at a local folder",
        }
    if condition["type"] in MEASURED and _measured(condition):
        # The world's own figures stand in for those of a service that nobody has asked.
        shown |= {
            "status": "Unknown",
            "reason": "Waiting",
            "message": "measured by a Job once pods serve",
        }
    if condition["type"] == Type.READY and condition["status"] == "True":
        shown["message"] = "when every stage above is True"
    return {**shown, "basis": basis}


def _measured(condition: Json) -> bool:
    """Whether it rests on a measurement, and not on the resource alone."""
    return condition["reason"] not in ("MethodNone", "NotRun", "Suspended", "Waiting")


def _source(plan: Plan, model: Json) -> str:
    return plan.checkpoints[model["role"]]


def _engine(plan: Plan, entry: Json, build: Json) -> Json:
    inputs = {k: v for k, v in build.items() if k not in ("key", "output", "role")}
    role = entry["role"]
    if not build:
        return {"role": role, "key": entry["key"], "basis": PREBUILT, "build": {}}
    # Heads are built into the target's engine.
    read = {role, "heads"} if build.get("heads") else {role}
    basis = LATER if LATER in {plan.checkpoints[one] for one in read} else CHECKED
    return {"role": role, "key": entry["key"], "basis": basis, "build": inputs}


def _job(job: Json) -> Json:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {
        "name": job["metadata"]["name"],
        "component": job["metadata"]["labels"][names.COMPONENT],
        "image": container["image"],
        "command": container["command"],
        "gpus": _gpus(container),
    }


def pods(server: Json) -> Json:
    """The pod templates of a Deployment, or of a group with its leader's and its workers'."""
    found: Json = server["spec"].get("leaderWorkerTemplate") or server["spec"]["template"]
    return found


def _server(name: str, server: Json) -> Json:
    group = pods(server)
    template = group.get("leaderTemplate", group)
    container = template["spec"]["containers"][0]  # what is beside it is no server
    return {
        "kind": server["kind"],
        "name": name,
        "replicas": server["spec"]["replicas"],
        "podsPerReplica": group.get("size", 1),
        "image": container["image"],
        "command": start.server(container["command"]),
        "env": {one["name"]: one["value"] for one in container.get("env", []) if "value" in one},
        "gpusPerPod": _gpus(container),
    }


def _gpus(container: Json) -> int:
    return int(container.get("resources", {}).get("limits", {}).get(GPU, 0))
