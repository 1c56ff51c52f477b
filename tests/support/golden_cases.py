"""Golden cases: for a resource, every object and repository file that the operator generates.

`tests/golden/cases.yaml` lists the cases. A case is a folder with a `cr.yaml`, a sample of
`manifests/samples`, or one of them on another front end. `tests/golden/stored.py` reads and writes
their files.

The files leave out Python programs of the payload, which have their own tests: a golden file must
change only if the operator generates something else.
"""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from specdec import backends
from specdec.api.model import SpeculativeModel
from specdec.api.source import Source
from specdec.backends import repository as engines_repository
from specdec.backends.tensorrt import image
from specdec.pipeline.stage import Context
from specdec.pipeline.stages import repository
from specdec.tools.dry_run.plan import repository as repository_files
from specdec.triton import launch, library
from specdec.triton.repository import render
from support.documents import load
from support.simulated_cluster import FACTS, World

HERE = Path(__file__).parents[1] / "golden"
_RESOURCES = {path.parent.name: path for path in HERE.glob("*/cr.yaml")}
ROWS: dict[str, Any] = load((HERE / "cases.yaml").read_text("utf-8"))
SAMPLES = {path.stem: path for path in (HERE.parents[1] / "manifests" / "samples").glob("*.yaml")}
# This sample has no SpeculativeModel: it puts the checkpoints of other samples on a claim.
del SAMPLES["reference-pair"]
# Cases with a file of their own.
OWN = sorted(_RESOURCES | SAMPLES)
CASES = sorted(ROWS)
_IDENTITY = {"namespace": "demo", "uid": "5a0c1b7e-0000-4000-8000-000000000001", "generation": 1}


@dataclass(frozen=True)
class Generated:
    """Everything that the operator generates for one resource, as sent to the API server."""

    case: str
    name: str
    objects: tuple[dict[str, Any], ...]
    status: dict[str, Any]
    repository: dict[str, str]

    def pods(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the spec of every pod template, with a unique name."""
        for body in self.objects:
            for number, template in enumerate(templates(body.get("spec", {}))):
                kind, name = body["kind"].lower(), body["metadata"]["name"]
                yield f"{self.case}-{kind}-{name}-{number}", copy.deepcopy(template["spec"])


def templates(spec: Any) -> list[Any]:
    """Return the pod templates of a Job, a Deployment or a LeaderWorkerSet."""
    group = spec.get("leaderWorkerTemplate", {})
    every = (spec.get("template"), group.get("leaderTemplate"), group.get("workerTemplate"))
    return [template for template in every if template is not None]


def resource(case: str) -> dict[str, Any]:
    """Return the resource of a case, as the API server would return it."""
    row = ROWS[case]
    own = row.get("of", case)
    path = _RESOURCES.get(own) or SAMPLES[own]
    cr: dict[str, Any] = load(path.read_text("utf-8"))
    if "of" in row:
        cr["spec"]["runtime"]["frontend"] = row["frontend"]
    return {**cr, "metadata": _IDENTITY | cr["metadata"]}


def fetched(cr: dict[str, Any]) -> dict[str, Any]:
    """Return the fetch Job's result for the sources of a resource."""
    models = {}
    for letter, (role, source) in zip(
        "abcde", SpeculativeModel.parse(cr).sources.items(), strict=False
    ):
        result = _checkpoints().get(_place(source), {"bytes": 1_000_000, "facts": FACTS})
        models[role] = {"digest": letter * 64, "revision": letter * 12, **result}
    return {"models": models, "engines": []}


@cache
def _checkpoints() -> dict[str, Any]:
    known: dict[str, Any] = load((HERE / "checkpoints.yaml").read_text("utf-8"))
    return known


def _place(source: Source) -> str:
    if source.pvc is not None:
        return f"{source.pvc.claim_name}/{source.pvc.path}"
    return source.hugging_face.repo if source.hugging_face else ""


@cache
def generated(case: str) -> Generated:
    """Return the result of `generate` from a cache; callers must not change it."""
    return generate(case)


def generate(case: str) -> Generated:
    """Run a case on the simulated cluster; return everything that the operator generates."""
    cr = resource(case)
    results = {"fetch": fetched(cr), "prune": {"prune": {"deleted": 3, "bytes": 1_000_000}}}
    with (
        patch.object(
            backends.programs, "payload", lambda folder: {"build_engine.py": f"# {folder}\n"}
        ),
        # Other tests cover the expectations of a release on its image.
        patch.object(image, "expectations", lambda version: {"version": version}),
        # Every step of a case renders the same files.
        patch.object(engines_repository, "_rendered", cache(render)),
        patch.object(repository, "_files", _without_programs),
        # Other tests cover the programs, which would appear in the files of every server.
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
    """Return a copy as the API server receives it."""
    copied: dict[str, Any] = json.loads(json.dumps(body))
    return copied


def _without_programs(context: Context) -> dict[str, str]:
    files = backends.of(context.model).repository(context.model, context.facts)
    return {path: text for path, text in files.items() if not path.endswith(".py")}
