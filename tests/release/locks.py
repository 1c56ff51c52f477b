"""The packages that go into images, each with the digests of its files.

`python -m release.locks`, or `make lock`, writes them.
"""

import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Lock file of an image -> the extras of the project whose packages it locks.
LOCKS = {
    "requirements-operator.txt": ("client", "jobs", "openai"),
    "requirements-reference.txt": ("reference",),
}
# Lock file -> the dependency group that it locks, without the requirements of its packages. They
# run in images of others, so their versions are not those of constraints.txt.
ALONE = {"requirements-packages.txt": "packages"}
# The operator's image also contains the project itself and its build requirements.
WITH_PROJECT = "requirements-operator.txt"
_LINE = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)$")


@dataclass(frozen=True)
class Pin:
    """One package of a lock: its version and how many files have a digest."""

    version: str
    digests: int


def locked(path: Path) -> dict[str, Pin]:
    """Return the packages of a lock by their canonical names.

    Raises:
        ValueError: a line lacks an exact version or SHA-256 digests.
    """
    pins: dict[str, Pin] = {}
    for line in re.sub(r" \\\n +", " ", path.read_text("utf-8")).splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise ValueError(f"{path.name}: no version with digests: {line[:80]}")
        name, version, digests = match.groups()
        pins[canonicalize_name(name)] = Pin(version, digests.count("--hash="))
    return pins


def constrained(path: Path) -> dict[str, str]:
    """Return the versions of constraints.txt by canonical names."""
    pairs = (line.split("==") for line in path.read_text("utf-8").split())
    return {canonicalize_name(name): version for name, version in pairs}


def required(root: Path, lock: str) -> list[Requirement]:
    """Return a lock's requirements in pyproject.toml, without their own dependencies."""
    body = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    if lock in ALONE:
        return [Requirement(line) for line in body["dependency-groups"][ALONE[lock]]]
    project = body["project"]
    lines = [line for extra in LOCKS[lock] for line in project["optional-dependencies"][extra]]
    if lock == WITH_PROJECT:
        lines += project["dependencies"] + body["build-system"]["requires"]
    return [Requirement(line) for line in lines]


def write(root: Path, lock: str) -> None:
    """Resolve one lock again under constraints.txt and write it.

    The lock has the digests of all files of a version, so that it works on every platform.

    Raises:
        subprocess.CalledProcessError: uv cannot resolve the lock, and printed the reason.
    """
    argv = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "-", "--output-file", lock]
    argv += ["--no-deps"] if lock in ALONE else ["--constraints", "constraints.txt"]
    argv += ["--generate-hashes", "--no-annotate"]
    argv += ["--python-version", "3.11", "--python-platform", "x86_64-unknown-linux-gnu"]
    argv += ["--custom-compile-command", "make lock"]
    text = "\n".join(map(str, required(root, lock)))
    subprocess.run(argv, input=text, text=True, cwd=root, check=True)


if __name__ == "__main__":
    for name in (*LOCKS, *ALONE):
        write(Path(__file__).parents[2], name)
