"""The kubectl plugin: its krew manifest, its archive, and the program that it starts."""

import io
import os
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


def test_plugin_prefers_specdec_of_path_over_the_index(folder: Path) -> None:
    package = f"specdec-operator[client]=={__version__}"
    rest = "plan -f a b.yaml\n"
    expected = [
        ("pipx", f"pipx run --spec {package} specdec {rest}"),
        ("uvx", f"uvx --quiet --from {package} specdec {rest}"),
        ("specdec", f"specdec {rest}"),
    ]
    for name, output in expected:
        program(folder, name)
        assert started(folder).stdout == output


def test_plugin_without_any_program_names_the_fix(folder: Path) -> None:
    done = started(folder)
    assert done.returncode == 2
    assert f"pip install 'specdec-operator[client]=={__version__}'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
