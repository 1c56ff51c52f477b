"""Golden cases: a resource in, every object and every repository file out.

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

from golden.world import World
from specdec.offline.plan import repository as repository_files
from specdec.offline.rendering import dump
from specdec.stages import backends, repository
from specdec.triton.repository import RepositoryPlan, render

HERE = Path(__file__).parent
CASES = sorted(path.parent.name for path in HERE.glob("*/cr.yaml"))


def generate(case: str) -> dict[str, str]:
    """Expected files of a case: path below its folder -> text."""
    cr = yaml.safe_load((HERE / case / "cr.yaml").read_text())
    with (
        patch.object(
            backends.programs, "payload", lambda folder: {"build_engine.py": f"# {folder}\n"}
        ),
        patch.object(repository, "_render", _render),
    ):
        world = World(cr)
        suspended = cr["spec"].pop("suspend", False)
        world.spec.pop("suspend", None)
        world.settle()
        if suspended:
            world.spec["suspend"] = True
            world.settle()
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
