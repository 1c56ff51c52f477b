"""`make pin` writes the digest that a registry has for each base image, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLD, NEW = (f"sha256:{digit * 64}" for digit in "ab")
DOCKERFILE = f"""FROM python:3.11-slim AS base
FROM rust:1.95@{OLD} AS library
FROM base AS operator
COPY --from=library /x /x
FROM scratch
"""


def pin(folder: Path, answer: str) -> subprocess.CompletedProcess[str]:
    """Run the command; a fake `docker` records its arguments and runs the script answer."""
    (folder / "Dockerfile").write_text(DOCKERFILE)
    programs = folder / "bin"
    programs.mkdir()
    docker = programs / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n{answer}\n')
    docker.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin"}
    environment["PYTHONPATH"] = str(ROOT / "tests")
    argv = [sys.executable, "-m", "release.pins", str(folder / "Dockerfile")]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def test_every_base_image_gets_the_digest_of_its_tag(tmp_path: Path) -> None:
    done = pin(tmp_path, f"""echo '{{"digest": "{NEW}", "manifests": [{{"digest": "{OLD}"}}]}}'""")
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "Dockerfile").read_text()
    assert written == DOCKERFILE.replace(OLD, NEW).replace("3.11-slim", f"3.11-slim@{NEW}")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[3] for line in asked] == ["python:3.11-slim", "rust:1.95"]
    assert f"rust:1.95@{NEW}" in done.stdout


@pytest.mark.parametrize(
    "answer",
    ["echo no such host >&2; exit 1", "echo latest", "echo", "echo '{\"digest\": 5}'", "echo []"],
)
def test_missing_digest_writes_nothing(tmp_path: Path, answer: str) -> None:
    done = pin(tmp_path, answer)
    assert done.returncode == 1
    assert "python:3.11-slim" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "Dockerfile").read_text() == DOCKERFILE
