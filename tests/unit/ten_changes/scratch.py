"""A copy of the production tree for a change, and the files that the change touches."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from specdec.dry_run.admission.definition import carried
from support.carried_definition import CARRIED
from support.documents import load

ROOT = Path(__file__).parents[3]
_PACKAGE = Path("operator/specdec")
# Programs for other containers; with the model pair too large to copy, so it is a link.
_LINKED = _PACKAGE / "payload"
CRD = Path("crds/speculativemodels.yaml")


class Scratch:
    """The operator's package and the definition, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._generated: set[Path] = set()
        ignore = shutil.ignore_patterns("__pycache__", "payload")
        shutil.copytree(ROOT / _PACKAGE, folder / _PACKAGE, ignore=ignore)
        (folder / _LINKED).symlink_to(ROOT / _LINKED)
        shutil.copytree(ROOT / "crds", folder / "crds")
        # Digests of the copy, because the tree may be edited while a test runs.
        self._original = {path: self._digest(path) for path in self._files()}

    def copy(self, path: str, to: str, *renames: tuple[str, str]) -> None:
        """Add a file to the package: a copy of another file with other names."""
        text = (self._folder / _PACKAGE / path).read_text()
        self.write(to, _renamed(text, renames))

    def write(self, path: str, text: str) -> None:
        """Add a file to the package."""
        file = self._folder / _PACKAGE / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def edit(self, path: str, *changes: tuple[str, str]) -> None:
        """Replace texts in a file of the package; each must occur exactly once."""
        self._edit(_PACKAGE / path, changes)

    def edit_definition(self, *changes: tuple[str, str]) -> None:
        """Replace texts in the CustomResourceDefinition, and generate what the package carries.

        `make generate` does this, and copies the definition to the chart.
        """
        self._edit(CRD, changes)
        copy = CARRIED.relative_to(ROOT)
        self._generated.add(copy)
        (self._folder / copy).write_text(carried(load((self._folder / CRD).read_text())))

    def definition_block(self, name: str) -> str:
        """The text of a property in the definition, the last one of that name."""
        lines = (self._folder / CRD).read_text().splitlines(keepends=True)
        start = max(i for i, line in enumerate(lines) if line.strip() == f"{name}:")
        depth = len(lines[start]) - len(lines[start].lstrip())
        inner = lines[start + 1 :]
        end = next(i for i, line in enumerate(inner) if len(line) - len(line.lstrip()) <= depth)
        return "".join(lines[start : start + 1 + end])

    def touched(self) -> list[str]:
        """Production files that differ from the tree's, or are new; none that are generated."""
        files = [path for path in self._files() if path not in self._generated]
        return sorted(str(p) for p in files if self._original.get(p) != self._digest(p))

    def run(self, program: str) -> str:
        """Run a program with the changed package and the helpers of the tests."""
        paths = [str(self._folder / "operator"), str(ROOT / "tests")]
        completed = subprocess.run(
            [sys.executable, "-c", program, str(self._folder / CRD)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def _edit(self, path: Path, changes: tuple[tuple[str, str], ...]) -> None:
        file = self._folder / path
        text = file.read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"{path} contains {text.count(old)} times: {old}"
            text = text.replace(old, new)
        file.write_text(text)

    def _files(self) -> list[Path]:
        copied = (
            path for top in (_PACKAGE, CRD.parent) for path in (self._folder / top).rglob("*")
        )
        return [
            path.relative_to(self._folder)
            for path in copied
            if path.is_file() and "__pycache__" not in path.parts
        ]

    def _digest(self, path: Path) -> str:
        return hashlib.sha256((self._folder / path).read_bytes()).hexdigest()


def _renamed(text: str, renames: tuple[tuple[str, str], ...]) -> str:
    for old, new in renames:
        text = text.replace(old, new)
    return text


# The start of the tests' programs: the typed model and the definition of the copy agree.
AGREE = """
import sys
from pathlib import Path
import yaml
import specdec
from specdec.api import model
from unit.test_crd_model import differences

assert str(Path(sys.argv[1]).parents[1]) in specdec.__file__, specdec.__file__
definition = yaml.safe_load(Path(sys.argv[1]).read_text())["spec"]["versions"][0]
spec = definition["schema"]["openAPIV3Schema"]["properties"]["spec"]
assert list(differences(model.Spec, spec, "spec")) == []
"""
