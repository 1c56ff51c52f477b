"""The conditions that a tree must meet before its version is tagged."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import yaml

from release.pins import unpinned

# Semantic versioning 2.0.0 without build metadata: an image tag cannot contain a plus sign.
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
_DATE = r"\d{4}-\d{2}-\d{2}"
CHARTS = ("charts/specdec-operator/Chart.yaml", "charts/specdec-model/Chart.yaml")
# The files that name released images.
NAMING = (
    "charts/specdec-operator/values.yaml",
    "manifests/install/deployment.yaml",
    "manifests/samples/reference-pair.yaml",
    "docs/install.md",
    "README.md",
)
_RELEASED = "operator/specdec/api/released.py"
# The files that the check reads.
ROOT_FILES = (
    "operator/specdec/__init__.py",
    _RELEASED,
    *CHARTS,
    *NAMING,
    "CHANGELOG.md",
    "Dockerfile",
)


def version(root: Path) -> str:
    """Return the version from the package's __init__.py; empty if it is missing."""
    text = (root / "operator" / "specdec" / "__init__.py").read_text("utf-8")
    match = re.search(r'^__version__ = "([^"]*)"$', text, re.MULTILINE)
    return match.group(1) if match else ""


def registry(root: Path) -> str:
    """Return the registry and organisation of released images; empty if they are missing."""
    text = (root / _RELEASED).read_text("utf-8")
    match = re.search(r'^REGISTRY = "([^"]*)"$', text, re.MULTILINE)
    return match.group(1) if match else ""


def problems(root: Path, tag: str = "", pushed_to: str = "") -> Iterator[str]:
    """Yield each problem of a release as a sentence that contains the fix.

    Args:
        root: a checkout.
        tag: the tag that is being released, if it exists already.
        pushed_to: registry and organisation that the images are pushed to, if known.
    """
    ours = version(root)
    if not _VERSION.fullmatch(ours):
        yield f"operator/specdec/__init__.py: __version__ is {ours!r}: make it X.Y.Z"
    if tag and tag != f"v{ours}":
        yield f"the tag is {tag} and the version {ours}: tag v{ours}, or change __version__"
    for chart in CHARTS:
        yield from _chart(root, chart, ours)
    yield from _images(root, ours, pushed_to)
    yield from _changelog(root, ours)
    for image in unpinned((root / "Dockerfile").read_text("utf-8")):
        yield f"Dockerfile: the base image {image} has no digest: ask `make pin` for it"
    yield from _git(root, ours, tag)


def _chart(root: Path, name: str, ours: str) -> Iterator[str]:
    chart = yaml.safe_load((root / name).read_text("utf-8"))
    for field in ("version", "appVersion"):
        if chart[field] != ours:
            yield f"{name}: {field} is {chart[field]}: set it to {ours}"


def _images(root: Path, ours: str, pushed_to: str) -> Iterator[str]:
    """Yield a problem for each image name that users could not pull after the release."""
    known = registry(root)
    if pushed_to and pushed_to != known:
        yield f"{_RELEASED}: REGISTRY is {known}, and the images are pushed to {pushed_to}: set it"
    for name in NAMING:
        text = (root / name).read_text("utf-8")
        if re.search(r"\blocalhost/", text):
            yield f"{name}: it names an image of localhost: name {known}"
        for tag in set(re.findall(rf"{re.escape(known)}/\w+:([\w.-]+)", text)) - {ours}:
            yield f"{name}: it names an image of version {tag}: name {ours}"
    chart = yaml.safe_load((root / NAMING[0]).read_text("utf-8"))
    if chart["registry"] != known:
        yield f"{NAMING[0]}: registry is {chart['registry']}: set it to {known}"


def _changelog(root: Path, ours: str) -> Iterator[str]:
    text = (root / "CHANGELOG.md").read_text("utf-8")
    sections = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE))
    if sections.get("Unreleased", "").strip():
        yield f"CHANGELOG.md: Unreleased has lines: put them under '## {ours} - YYYY-MM-DD'"
    heading = re.compile(rf"{re.escape(ours)} - {_DATE}")
    if not any(heading.fullmatch(name) and body.strip() for name, body in sections.items()):
        yield f"CHANGELOG.md: no section '## {ours} - YYYY-MM-DD' with lines: write one"


def _git(root: Path, ours: str, tag: str) -> Iterator[str]:
    changed = _git_output(root, "status", "--porcelain").splitlines()
    if changed:
        yield f"git: {len(changed)} files are not committed, such as {changed[0][3:]}: commit them"
    # A tag that triggers the release exists already. Without it, a tag of this name is older.
    if not tag and _git_output(root, "tag", "--list", f"v{ours}").strip():
        yield f"git: the tag v{ours} exists: raise __version__"


def _git_output(root: Path, *args: str) -> str:
    argv = ["git", "-C", str(root), *args]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout
