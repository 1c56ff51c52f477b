"""A copy of the production tree, to which a test applies a change and counts changed files."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from specdec.tools.dry_run.admission.definition import carried
from support.carried_definition import CARRIED
from support.documents import load

ROOT = Path(__file__).parents[3]
_PACKAGE = Path("operator/specdec")
# The model pair is too large to copy: a link.
_LINKED = _PACKAGE / "images" / "pair"
CRD = Path("crds/speculativemodels.yaml")

_GENERATE = """
import sys
from pathlib import Path
from support.backend_rules import written

definition = Path(sys.argv[1])
definition.write_text(written(definition.read_text()))
"""


class Scratch:
    """A copy of the operator's package and the CustomResourceDefinition in another folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._generated: set[Path] = set()
        ignore = shutil.ignore_patterns("__pycache__", "pair")
        shutil.copytree(ROOT / _PACKAGE, folder / _PACKAGE, ignore=ignore)
        (folder / _LINKED).symlink_to(ROOT / _LINKED)
        shutil.copytree(ROOT / "crds", folder / "crds")
        # Digests of the copy and not of the tree, which may be edited while a test runs.
        self._original = {path: self._digest(path) for path in self._files()}

    def copy(self, path: str, to: str, *renames: tuple[str, str]) -> None:
        """Add a copy of a file to the package, with renamed identifiers."""
        text = (self._folder / _PACKAGE / path).read_text()
        self.write(to, _renamed(text, renames))

    def write(self, path: str, text: str) -> None:
        """Add a file to the package."""
        file = self._folder / _PACKAGE / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def edit(self, path: str, *changes: tuple[str, str]) -> None:
        """Replace texts in a file of the package; each text must occur exactly once."""
        self._edit(_PACKAGE / path, changes)

    def edit_definition(self, *changes: tuple[str, str]) -> None:
        """Replace texts in the CustomResourceDefinition, and generate the package's copy of it.

        `make generate` also does this, and copies the definition to the chart.
        """
        self._edit(CRD, changes)
        self._carry_definition()

    def generate_definition(self) -> None:
        """Write what depends on the backends into the definition, as `make generate` does."""
        self._generated.add(CRD)
        self.run(_GENERATE)
        self._carry_definition()

    def definition_block(self, name: str) -> str:
        """Return the text of the definition's last property with this name."""
        lines = (self._folder / CRD).read_text().splitlines(keepends=True)
        start = max(i for i, line in enumerate(lines) if line.strip() == f"{name}:")
        depth = len(lines[start]) - len(lines[start].lstrip())
        inner = lines[start + 1 :]
        end = next(i for i, line in enumerate(inner) if len(line) - len(line.lstrip()) <= depth)
        return "".join(lines[start : start + 1 + end])

    def touched(self) -> list[str]:
        """Return the production files that are new or changed; generated files do not count."""
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

    def _carry_definition(self) -> None:
        copy = CARRIED.relative_to(ROOT)
        self._generated.add(copy)
        (self._folder / copy).write_text(carried(load((self._folder / CRD).read_text())))

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


# Every program of the tests starts with this check: the copy's typed model and definition agree.
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
