"""The workflows: pinned, with few rights, and of commands that exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def workflow(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def steps(path: Path) -> Iterator[Any]:
    for job in workflow(path)["jobs"].values():
        yield from job["steps"]


def test_there_are_workflows() -> None:
    assert {path.stem for path in FILES} == {"release", "test"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_action_is_pinned_to_a_commit_and_says_its_release(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text("utf-8"))
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rights_are_few_and_no_script_takes_foreign_text(path: Path) -> None:
    body = workflow(path)
    assert body["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in str(body)
    for job in body["jobs"].values():
        assert job.get("permissions", {}).get("contents", "read") == "read"
        assert job["timeout-minutes"]
    for step in steps(path):
        # An expression inside a script is text of the shell; variables are not.
        assert "${{" not in step.get("run", "")
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_make_targets_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    scripts = "\n".join(step.get("run", "") for step in steps(path))
    for line in re.findall(r"\bmake (.+)", scripts):
        assert {word for word in line.split() if "=" not in word} <= targets


def test_ci_runs_the_readme_s_command() -> None:
    scripts = "\n".join(
        step.get("run", "") for step in steps(ROOT / ".github/workflows/test.yaml")
    )
    assert ".ci/run" in scripts


def test_images_come_with_sbom_and_provenance_for_the_platforms_they_run_on() -> None:
    job = workflow(ROOT / ".github/workflows/release.yaml")["jobs"]["image"]
    platforms = {one["target"]: one["platforms"] for one in job["strategy"]["matrix"]["include"]}
    stages = set(
        re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    )
    assert set(platforms) == stages - {"base", "library"}
    assert platforms["operator"] == "linux/amd64,linux/arm64"
    assert platforms["reference"] == "linux/amd64"
    (build,) = [s for s in job["steps"] if s.get("uses", "").startswith("docker/build-push")]
    assert build["with"]["sbom"] is True
    assert build["with"]["provenance"] == "mode=max"
    assert job["needs"] == "check"
