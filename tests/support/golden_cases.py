"""Golden cases: a resource in, every object and every repository file out.

`tests/golden/cases.yaml` lists the cases. A case is a folder with a `cr.yaml`, or a sample of
`manifests/samples`. `tests/golden/stored.py` reads and writes their files.

Python programs of the payload are left out: they have tests of their own, and a golden file must
change only when what the operator generates does.
"""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from specdec import backends
from specdec.api.model import SpeculativeModel
from specdec.api.source import Source
from specdec.backends.tensorrt import image
from specdec.dry_run.plan import repository as repository_files
from specdec.pipeline import repository
from specdec.triton import launch, library
from specdec.triton.repository import RepositoryPlan, render
from support.simulated_cluster import FACTS, World

HERE = Path(__file__).parents[1] / "golden"
_RESOURCES = {path.parent.name: path for path in HERE.glob("*/cr.yaml")}
SAMPLES = {path.stem: path for path in (HERE.parents[1] / "manifests" / "samples").glob("*.yaml")}
# Not a resource of ours: the checkpoints on a claim that the others read.
del SAMPLES["reference-pair"]
CASES = sorted(_RESOURCES | SAMPLES)
_IDENTITY = {"namespace": "demo", "uid": "5a0c1b7e-0000-4000-8000-000000000001", "generation": 1}


@dataclass(frozen=True)
class Generated:
    """What the operator generates of one resource, as it would send it."""

    case: str
    name: str
    objects: tuple[dict[str, Any], ...]
    status: dict[str, Any]
    repository: dict[str, str]

    def pods(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every pod template, with a name that is its own."""
        for body in self.objects:
            for number, template in enumerate(templates(body.get("spec", {}))):
                kind, name = body["kind"].lower(), body["metadata"]["name"]
                yield f"{self.case}-{kind}-{name}-{number}", copy.deepcopy(template["spec"])


def templates(spec: Any) -> list[Any]:
    """Pod templates of a Job, a Deployment or a group."""
    group = spec.get("leaderWorkerTemplate", {})
    every = (spec.get("template"), group.get("leaderTemplate"), group.get("workerTemplate"))
    return [template for template in every if template is not None]


def read(path: Path) -> Any:
    """A YAML file, read fast."""
    return yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)


def resource(case: str) -> dict[str, Any]:
    """The resource of a case as the API server would hand it out."""
    path = _RESOURCES.get(case) or SAMPLES[case]
    cr: dict[str, Any] = read(path)
    return {**cr, "metadata": _IDENTITY | cr["metadata"]}


def fetched(cr: dict[str, Any]) -> dict[str, Any]:
    """What the fetch Job would report of the resource's sources."""
    models = {}
    for letter, (role, source) in zip(
        "abcde", SpeculativeModel.parse(cr).sources.items(), strict=False
    ):
        result = _checkpoints().get(_place(source), {"bytes": 1_000_000, "facts": FACTS})
        models[role] = {"digest": letter * 64, "revision": letter * 12, **result}
    return {"models": models, "engines": []}


@cache
def _checkpoints() -> dict[str, Any]:
    known: dict[str, Any] = read(HERE / "checkpoints.yaml")
    return known


def _place(source: Source) -> str:
    if source.pvc is not None:
        return f"{source.pvc.claim_name}/{source.pvc.path}"
    return source.hugging_face.repo if source.hugging_face else ""


@cache
def generated(case: str) -> Generated:
    """What a case generates; once in a session, so callers must not change it."""
    return generate(case)


def generate(case: str) -> Generated:
    """What a case generates, without the cache."""
    cr = resource(case)
    results = {"fetch": fetched(cr), "prune": {"prune": {"deleted": 3, "bytes": 1_000_000}}}
    with (
        patch.object(
            backends.programs, "payload", lambda folder: {"build_engine.py": f"# {folder}\n"}
        ),
        # What a release expects of an image has tests of its own.
        patch.object(image, "expectations", lambda version: {"version": version}),
        # Every step of a case renders the same files.
        patch.object(repository, "_render", cache(_render)),
        # The programs have tests of their own, and every server would show them.
        patch.object(launch, "program", lambda name: f"# {name}\n"),
        # A golden file must not change with the library's sources.
        patch.object(library, "source_digest", lambda: "d" * 64),
    ):
        world = World(cr)
        suspended = cr["spec"].pop("suspend", False)
        world.spec.pop("suspend", None)
        world.settle(lambda component: results.get(component, {}))
        if suspended:
            world.spec["suspend"] = True
            world.settle(lambda component: results.get(component, {}))
    return Generated(
        case,
        cr["metadata"]["name"],
        tuple(_json(body) for body in world.ever_applied.values()),
        _json(world.cr["status"]),
        repository_files(world.ever_applied),
    )


def _json(body: Any) -> dict[str, Any]:
    """A copy as the API server gets it."""
    copied: dict[str, Any] = json.loads(json.dumps(body))
    return copied


def _render(plan: RepositoryPlan) -> dict[str, str]:
    return {path: text for path, text in render(plan).items() if not path.endswith(".py")}
