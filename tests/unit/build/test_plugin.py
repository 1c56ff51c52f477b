"""The kubectl plugin: its krew manifest, its archive, and the program that it starts."""

import io
import os
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from release import plugin
from specdec import __version__

MANIFEST: dict[str, Any] = yaml.safe_load(
    (plugin.ROOT / "manifests" / "krew" / "specdec.yaml").read_text("utf-8")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with only the plugin, installed as krew installs it."""
    with zipfile.ZipFile(io.BytesIO(plugin.archive())) as archive:
        for entry in archive.infolist():
            archive.extract(entry, tmp_path)
            (tmp_path / entry.filename).chmod(entry.external_attr >> 16)
    return tmp_path


def program(folder: Path, name: str) -> None:
    """Write a program that prints its name and arguments."""
    (folder / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
    (folder / name).chmod(0o755)


def started(folder: Path) -> subprocess.CompletedProcess[str]:
    (platform,) = MANIFEST["spec"]["platforms"]
    argv = [str(folder / platform["bin"]), "plan", "-f", "a b.yaml"]
    environment = {**os.environ, "PATH": str(folder)}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def test_manifest_describes_the_archive_of_this_release(folder: Path) -> None:
    (platform,) = MANIFEST["spec"]["platforms"]
    assert MANIFEST["spec"]["version"] == f"v{__version__}"
    assert platform["uri"].endswith(f"/releases/download/v{__version__}/{plugin.NAME}")
    assert platform["sha256"] == plugin.digest()
    for file in platform["files"]:
        assert (folder / file["from"]).is_file()


def test_script_names_this_release(folder: Path) -> None:
    assert f"\nversion={__version__}\n" in (folder / "kubectl-specdec").read_text("utf-8")


def test_plugin_starts_specdec_of_path(folder: Path) -> None:
    program(folder, "specdec")
    assert started(folder).stdout == "specdec plan -f a b.yaml\n"


def test_plugin_never_runs_a_package_of_the_index(folder: Path) -> None:
    """A stranger could register the name; `uvx` and `pipx` would run his code."""
    for name in ("uvx", "pipx", "pip"):
        program(folder, name)
    done = started(folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "run: pip install '.[client]' in a checkout" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_nothing_installs_the_package_by_its_name() -> None:
    """The name is not registered at the package index, so a stranger could take it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=plugin.ROOT, capture_output=True, text=True, check=True
    )
    install = re.compile(
        r"(pip3? install|pipx (run|install)|uvx|uv (pip|tool) \S+)[^`\n]*specdec[^\n]*"
    )
    local = re.compile(r"install [^\n]*\./specdec_operator-[\w.-]+\.whl")
    for name in filter(None, listed.stdout.split("\0")):
        path = plugin.ROOT / name
        if name.startswith(("docs/adr/", "tests/")) or not path.is_file():
            continue
        for match in install.finditer(path.read_bytes().decode("utf-8", "replace")):
            assert local.search(match[0]), f"{name}: {match[0]}"
