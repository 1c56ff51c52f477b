"""The check of a release accepts a valid tree and reports each problem."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from release.check import CHARTS, NAMING, ROOT_FILES, problems, registry, version

ROOT = Path(__file__).parents[2]
DEPLOYMENT = "manifests/install/deployment.yaml"
DIGEST = "sha256:" + "a" * 64
ENVIRONMENT = {
    **os.environ,
    **{
        f"GIT_{who}_{what}": "a@b.c"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    },
    "GIT_CONFIG_GLOBAL": os.devnull,
}


def git(root: Path, *args: str) -> None:
    argv = ["git", "-C", str(root), *args]
    subprocess.run(argv, env=ENVIRONMENT, check=True, capture_output=True)


def edit(root: Path, name: str, old: str, new: str) -> None:
    text = (root / name).read_text()
    assert old in text
    (root / name).write_text(text.replace(old, new))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the checked files, edited as for a release."""
    for name in ROOT_FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    edit(
        tmp_path,
        "CHANGELOG.md",
        "## Unreleased\n",
        f"## Unreleased\n\n## {version(ROOT)} - 2026-11-21\n",
    )
    dockerfile = tmp_path / "Dockerfile"
    pinned = re.sub(
        r"(?m)^(FROM [^\s@]+:[^\s@]+)(@\S+)?( .*)$", rf"\1@{DIGEST}\3", dockerfile.read_text()
    )
    dockerfile.write_text(pinned)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", "x")


def test_valid_tree_has_no_problems(tree: Path) -> None:
    assert list(problems(tree)) == []
    git(tree, "tag", f"v{version(tree)}")
    assert list(problems(tree, f"v{version(tree)}")) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (ROOT_FILES[0], '"0.', '"v0.', "make it X.Y.Z"),
        (CHARTS[0], "\nversion: 0.", "\nversion: 9.", "version is 9."),
        (CHARTS[0], "appVersion: 0.", "appVersion: 9.", "appVersion is 9."),
        (CHARTS[1], "\nversion: 0.", "\nversion: 9.", "version is 9."),
        (DEPLOYMENT, "ghcr.io/specdec/", "localhost/specdec/", "an image of localhost"),
        (DEPLOYMENT, "operator:0.", "operator:9.", "an image of version 9."),
        (NAMING[0], "registry: ghcr.io/specdec", "registry: ghcr.io/a", "registry is ghcr.io/a"),
        (
            "Dockerfile",
            f"bookworm@{DIGEST} AS base",
            "bookworm AS base",
            "python:3.11-slim-bookworm",
        ),
        (
            "Dockerfile",
            f"bookworm@{DIGEST} AS library",
            "bookworm@sha256:0 AS library",
            "make pin",
        ),
        ("CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n- news\n", "Unreleased has lines"),
        ("CHANGELOG.md", " - 2026-11-21", "", "no section '## "),
    ],
)
def test_problem_is_reported_with_its_file(
    tree: Path, name: str, old: str, new: str, message: str
) -> None:
    edit(tree, name, old, new)
    commit(tree)
    reported = list(problems(tree))
    assert any(message in item and name in item for item in reported), reported


def test_every_file_that_names_a_released_image_is_checked() -> None:
    listed = ["git", "-C", str(ROOT), "grep", "-lE", rf"{registry(ROOT)}/(operator|reference):"]
    files = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in files if not name.startswith("tests/")} <= set(NAMING)


def test_other_registry_than_the_named_one_is_refused(tree: Path) -> None:
    (problem,) = problems(tree, f"v{version(tree)}", "ghcr.io/somebody")
    assert "REGISTRY is ghcr.io/specdec, and the images are pushed to ghcr.io/somebody" in problem
    assert list(problems(tree, f"v{version(tree)}", registry(tree))) == []


def test_tree_with_changes_or_an_existing_tag_is_refused(tree: Path) -> None:
    (tree / "new").write_text("x")
    assert [s for s in problems(tree) if "not committed, such as new" in s]
    commit(tree)
    assert list(problems(tree)) == []
    git(tree, "tag", f"v{version(tree)}")
    assert ["exists: raise __version__" in s for s in problems(tree)] == [True]
    assert ["tag v" in s for s in problems(tree, "v9.9.9")] == [True]


def test_command_prints_the_problem_and_fails() -> None:
    """Check the command with a tag that differs from the version."""
    argv = [sys.executable, "-m", "release", "v9.9.9"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "release-check: the tag is v9.9.9 and the version" in done.stderr
    assert "Traceback" not in done.stderr
