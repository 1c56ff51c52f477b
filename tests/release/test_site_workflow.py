"""The workflow `site` publishes a folder per version; tests run it with a local repository."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
(JOB,) = yaml.safe_load((ROOT / ".github/workflows/site.yaml").read_text("utf-8"))["jobs"].values()


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a page, the settings of the site, and a remote to push to."""
    remote, folder = tmp_path / "remote.git", tmp_path / "checkout"
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    git(tmp_path, "clone", "--quiet", str(remote), str(folder))
    (folder / "docs").mkdir()
    (folder / "docs" / "index.md").write_text("# Page\n")
    (folder / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nnav: [index.md]\nnot_in_nav: ''\n"
        f"theme: {{custom_dir: {ROOT / 'theme'}}}\n"
    )
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "Page")
    return folder


def publish(folder: Path, kind: str, name: str) -> None:
    """Run the script of the step `publish` as the runner does, for a branch or a tag."""
    (script,) = [step["run"] for step in JOB["steps"] if step.get("id") == "publish"]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "NO_MKDOCS_2_WARNING": "1",
        "GITHUB_REF_TYPE": kind,
        "GITHUB_REF_NAME": name,
    }
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    done = subprocess.run(
        argv, env=environment, cwd=folder, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_versions_are_published_beside_each_other(checkout: Path) -> None:
    publish(checkout, "branch", "main")
    publish(checkout, "tag", "v0.1.0")
    publish(checkout, "tag", "v0.2.0")
    remote = checkout.parent / "remote.git"
    versions = json.loads(git(remote, "show", "gh-pages:versions.json"))
    assert {entry["version"]: entry["aliases"] for entry in versions} == {
        "main": [],
        "0.1.0": [],
        "0.2.0": ["latest"],
    }
    files = git(remote, "ls-tree", "-r", "--name-only", "gh-pages").splitlines()
    assert {f"{name}/index.html" for name in ("main", "0.1.0", "0.2.0", "latest")} <= set(files)
    assert "latest/" in git(remote, "show", "gh-pages:index.html")


def test_workflow_installs_the_packages_of_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {re.split(r"[<>=]", line)[0] for line in extras["optional-dependencies"]["docs"]}
    (install,) = [
        step["run"] for step in JOB["steps"] if step.get("run", "").startswith("pip install")
    ]
    assert set(install.removeprefix("pip install --constraint constraints.txt ").split()) == names
