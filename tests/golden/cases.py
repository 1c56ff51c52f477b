"""Golden cases: a resource in, every object and every repository file out.

A case is a folder with a `cr.yaml`, or a sample of `manifests/samples`.

`python tests/golden/update.py` writes what is expected anew; review its diff like code. Python
files of the payload are left out: they have tests of their own, and a golden file must change
only when what the operator generates does.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from golden.world import FACTS, World
from specdec import backends
from specdec.api.model import SpeculativeModel
from specdec.api.source import Source
from specdec.dry_run.plan import repository as repository_files
from specdec.dry_run.rendering import dump
from specdec.pipeline import repository
from specdec.triton import library, start
from specdec.triton.repository import RepositoryPlan, render

HERE = Path(__file__).parent
_RESOURCES = {path.parent.name: path for path in HERE.glob("*/cr.yaml")}
SAMPLES = {path.stem: path for path in (HERE.parents[1] / "manifests" / "samples").glob("*.yaml")}
# Not a resource of ours: the checkpoints on a claim that the others read.
del SAMPLES["reference-pair"]
CASES = sorted(_RESOURCES | SAMPLES)
_IDENTITY = {"namespace": "demo", "uid": "5a0c1b7e-0000-4000-8000-000000000001", "generation": 1}


def resource(case: str) -> dict[str, Any]:
    """The resource of a case as the API server would hand it out."""
    path = _RESOURCES.get(case) or SAMPLES[case]
    cr: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return {**cr, "metadata": _IDENTITY | cr["metadata"]}


def fetched(cr: dict[str, Any]) -> dict[str, Any]:
    """What the fetch Job would say of the resource's sources."""
    known = yaml.safe_load((HERE / "checkpoints.yaml").read_text("utf-8"))
    models = {}
    for letter, (role, source) in zip(
        "abcde", SpeculativeModel.parse(cr).sources.items(), strict=False
    ):
        found = known.get(_place(source), {"bytes": 1_000_000, "facts": FACTS})
        models[role] = {"digest": letter * 64, "revision": letter * 12, **found}
    return {"models": models, "engines": []}


def _place(source: Source) -> str:
    if source.pvc is not None:
        return f"{source.pvc.claim_name}/{source.pvc.path}"
    return source.hugging_face.repo if source.hugging_face else ""


def generate(case: str) -> dict[str, str]:
    """Expected files of a case: path below its folder -> text."""
    cr = resource(case)
    told = fetched(cr)
    with (
        patch.object(
            backends.programs, "payload", lambda folder: {"build_engine.py": f"# {folder}\n"}
        ),
        patch.object(repository, "_render", _render),
        # The program has tests of its own, and every server would show it.
        patch.object(start, "program", lambda name: f"# {name}\n"),
        # A golden file must not change with the library's sources.
        patch.object(library, "source", lambda: "d" * 64),
    ):
        world = World(cr)
        suspended = cr["spec"].pop("suspend", False)
        world.spec.pop("suspend", None)
        world.settle(lambda component: told if component == "fetch" else {})
        if suspended:
            world.spec["suspend"] = True
            world.settle(lambda component: told if component == "fetch" else {})
    return dict(_files(world))


def _files(world: World) -> Iterator[tuple[str, str]]:
    files: dict[str, str] = {}
    for (kind, name), obj in world.ever_applied.items():
        shown = copy.deepcopy(obj)
        if kind == "ConfigMap" and "expectations.json" in shown["data"]:
            files = repository_files(world.ever_applied)
            shown["data"] = {k: _line(k, v) for k, v in shown["data"].items()}
        yield f"expected/{_file(world, kind, name)}.yaml", _yaml(shown)
    for path, text in files.items():
        yield f"expected/repository/{path}", text
    yield "expected/status.yaml", _yaml(world.cr["status"])


def _line(key: str, text: str) -> str:
    return text if key == "expectations.json" else "(see repository/)"


def _file(world: World, kind: str, name: str) -> str:
    """A stable file name: hashes in object names stand as roles."""
    for engine in world.cr["status"]["engines"]:
        if engine["job"] == name:
            return f"{kind.lower()}-engine-{engine['role']}"
    stem, _, tail = name.rpartition("-")
    hashed = len(tail) == 10 and all(c in "0123456789abcdef" for c in tail)
    return f"{kind.lower()}-{stem if hashed else name}"


def _render(plan: RepositoryPlan) -> dict[str, str]:
    return {path: text for path, text in render(plan).items() if not path.endswith(".py")}


def _yaml(value: Mapping[str, Any]) -> str:
    return dump(json.loads(json.dumps(value)))
