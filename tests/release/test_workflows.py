"""Workflows pin their actions, have few permissions, and run commands that exist."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.locks import ALONE, LOCKS

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))

# These jobs push to the registry, and need an identity for their signatures.
_PUBLISHES = {"contents": "read", "packages": "write", "id-token": "write"}
RIGHTS = {
    ("release", "image"): _PUBLISHES,
    ("release", "chart"): _PUBLISHES,
    # Creates the release with its files, and needs the identity that the package index trusts.
    ("release", "package"): {"contents": "write", "id-token": "write"},
    # Pushes to the branch of the published site.
    ("site", "publish"): {"contents": "write"},
}
RELEASE = ROOT / ".github" / "workflows" / "release.yaml"
DIGEST = "sha256:" + "5" * 64


def workflow(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def steps(path: Path) -> Iterator[Any]:
    for job in workflow(path)["jobs"].values():
        yield from job["steps"]


def test_workflows_exist() -> None:
    assert {path.stem for path in FILES} == {"nightly", "release", "scan", "site", "test"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_action_is_pinned_to_a_commit_and_names_its_release(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text("utf-8"))
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_workflows_have_few_permissions_and_no_untrusted_input(path: Path) -> None:
    body = workflow(path)
    assert body["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in str(body)
    for name, job in body["jobs"].items():
        assert job.get("permissions", {}) == RIGHTS.get((path.stem, name), {})
        assert job["timeout-minutes"]
    for step in steps(path):
        # The shell would execute the text of an expression, but not the value of a variable.
        assert "${{" not in step.get("run", "")
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_make_targets_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    scripts = "\n".join(step.get("run", "") for step in steps(path))
    for line in re.findall(r"\bmake (.+)", scripts):
        assert {word for word in line.split() if "=" not in word} <= targets


def test_ci_runs_the_command_of_the_readme() -> None:
    scripts = "\n".join(
        step.get("run", "") for step in steps(ROOT / ".github/workflows/test.yaml")
    )
    assert ".ci/run" in scripts


def test_images_have_sbom_and_provenance_for_their_platforms() -> None:
    job = workflow(ROOT / ".github/workflows/release.yaml")["jobs"]["image"]
    platforms = {
        image["target"]: image["platforms"] for image in job["strategy"]["matrix"]["include"]
    }
    stages = set(
        re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    )
    assert set(platforms) == stages - {"base", "library"}
    assert platforms["operator"] == "linux/amd64,linux/arm64"
    assert platforms["reference"] == "linux/amd64"
    (build,) = [s for s in job["steps"] if s.get("id") == "build"]
    assert build["with"]["sbom"] is True
    assert build["with"]["provenance"] == "mode=max"
    assert job["needs"] == "check"


def test_package_has_no_key_and_is_published_before_the_release_names_it() -> None:
    build, plugin, publish, release = ordered(
        "package", "uv build", "release.plugin", "uv publish", "gh release create"
    )
    assert publish["run"].startswith("uv publish --trusted-publishing always ")
    assert "env" not in publish
    assert build["run"].split()[-1] == plugin["run"].split()[-1] == "dist"
    assert release["run"].endswith(" dist/*")


def ordered(job: str, *parts: str) -> list[Any]:
    """Return the steps that contain these texts, and check that they come in this order."""
    steps_ = workflow(RELEASE)["jobs"][job]["steps"]
    places = []
    for part in parts:
        (place,) = [i for i, step in enumerate(steps_) if part in f"{step}"]
        places.append(place)
    assert places == sorted(places)
    return [steps_[place] for place in places]


def test_image_is_scanned_before_push_and_signed_by_digest() -> None:
    trial, scan, push, sign = ordered(
        "image", "'load': True", "anchore/scan-action", "'push': True", "cosign sign"
    )
    for field in ("context", "target"):
        assert trial["with"][field] == push["with"][field]
    assert trial["with"]["tags"] == scan["with"]["image"]
    assert "push" not in trial["with"]
    require_strict(scan)
    assert sign["env"]["DIGEST"] == "${{ steps.build.outputs.digest }}"
    assert run(sign["run"], IMAGE="ghcr.io/o/r/operator:1.0.0", DIGEST=DIGEST) == [
        f"cosign sign --yes ghcr.io/o/r/operator@{DIGEST}"
    ]


def test_chart_is_signed_by_the_digest_that_the_push_printed(tmp_path: Path) -> None:
    (push,) = ordered("chart", "helm push")
    assert workflow(RELEASE)["defaults"]["run"]["shell"] == "bash", "else a pipe hides a failure"
    (tmp_path / "dist").mkdir()
    for chart in ("operator", "model"):
        (tmp_path / "dist" / f"specdec-{chart}-1.0.0.tgz").touch()
    given = {"REGISTRY": "ghcr.io", "GITHUB_REPOSITORY_OWNER": "Owner", "TOKEN": "secret"}
    given |= {"GITHUB_ACTOR": "me", "GITHUB_REF_NAME": "v1.0.0"}
    lines = run(push["run"], folder=tmp_path, **given)
    assert not any("secret" in line for line in lines)
    assert [line for line in lines if "login" not in line] == [
        line
        for chart in ("model", "operator")
        for line in (
            f"helm push dist/specdec-{chart}-1.0.0.tgz oci://ghcr.io/owner/charts",
            f"cosign sign --yes ghcr.io/owner/charts/specdec-{chart}@{DIGEST}",
        )
    ]


def test_chart_without_a_digest_is_not_signed(tmp_path: Path) -> None:
    (push,) = ordered("chart", "helm push")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "specdec-model-1.0.0.tgz").touch()
    with pytest.raises(subprocess.CalledProcessError):
        run(
            push["run"],
            folder=tmp_path,
            helm='test "$1" != push',
            REGISTRY="r",
            GITHUB_REPOSITORY_OWNER="o",
            TOKEN="t",
            GITHUB_ACTOR="a",
            GITHUB_REF_NAME="v1.0.0",
        )
    assert "cosign sign" not in (tmp_path / "asked").read_text()


def require_strict(scan: Any) -> None:
    given = scan["with"]
    assert given["fail-build"] is True
    assert given["severity-cutoff"] == "high"


def run(script: str, *, folder: Path | None = None, helm: str = "", **variables: str) -> list[str]:
    """Run a step's script as the runner does, and return the calls that fake programs record.

    Raises:
        subprocess.CalledProcessError: the script failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        place = folder or Path(scratch)
        programs = Path(scratch) / "bin"
        programs.mkdir()
        answers = {
            "helm": helm or f'[ "$1" = push ] && echo "Digest: {DIGEST}" >&2; true',
            "cosign": "",
        }
        for name, answer in answers.items():
            # The real programs also read the password: otherwise the writer of the pipe fails.
            reads = 'case "$*" in *--password-stdin*) cat > /dev/null ;; esac'
            text = f'#!/bin/sh\necho "{name} $*" >> {place}/asked\n{reads}\n{answer}\n'
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        environment = {"PATH": f"{programs}:/usr/bin:/bin", **variables}
        argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        subprocess.run(argv, env=environment, cwd=place, check=True, capture_output=True)
        return (place / "asked").read_text().splitlines()


def test_packages_of_images_are_scanned_weekly() -> None:
    body = workflow(ROOT / ".github/workflows/scan.yaml")
    # YAML reads the key `on` as true.
    assert {"schedule", "push", "pull_request"} <= set(body[True])
    (job,) = body["jobs"].values()
    (scan,) = [step for step in job["steps"] if "anchore/scan-action" in step.get("uses", "")]
    require_strict(scan)
    script = "\n".join(step.get("run", "") for step in job["steps"])
    for name in (*LOCKS, *ALONE, "Cargo.lock"):
        assert name in script
    assert scan["with"]["path"] in script


def test_updates_are_proposed_for_base_images_and_actions() -> None:
    body = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text("utf-8"))
    assert {"docker", "github-actions", "cargo"} <= {
        u["package-ecosystem"] for u in body["updates"]
    }
    for update in body["updates"]:
        assert (ROOT / update["directory"].strip("/")).is_dir()
