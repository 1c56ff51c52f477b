"""Lay out a CPU tritonserver that serves the Reference backend: `python install.py --dest DIR`.

The server comes out of the `nvidia-pytriton` wheel, which carries a complete Triton 2.51. Only
the wheel's files are used; importing the package would start far more than a server.

Afterwards `DIR/bin/tritonserver` takes the same arguments as the one in NVIDIA's image:

    DIR/bin/tritonserver          launcher: library and interpreter paths, then exec of the server
    DIR/libexec/tritonserver      the server
    DIR/lib, DIR/pylib            its libraries; the libpython of the interpreter that runs models
    DIR/backends/python           Triton's python backend with the stub of that interpreter
    DIR/backends/tensorrtllm      the Reference backend

Needs only the standard library, so that a Dockerfile can run it before anything is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WHEEL = "nvidia-pytriton==0.7.0"
# SHA-256 of the wheel for Linux on x86-64, and of that on ARM, as the package index states them.
SHA256 = (
    "21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df",
    "f99e07ee56fe065337453956afba17d2673e02ec6a632c3de26ce6e7b32a0898",
)
# Python versions that the backend supports and the wheel has stubs for.
PYTHONS = ("3.11", "3.12", "3.13")
BACKEND = Path(__file__).resolve().parent / "tensorrtllm"
_PAYLOAD = BACKEND.parents[1]
# The backend, and the modules that its stand-in for the LLM API needs for checkpoints and text.
FOLDERS = {"": BACKEND, "build": _PAYLOAD / "build", "text": _PAYLOAD / "models" / "shared"}
SERVER = "pytriton/tritonserver"
LIBRARIES = "nvidia_pytriton.libs"

_PROBE = """
import json, sys, sysconfig
from importlib import metadata
names = ("LIBDIR", "MULTIARCH")
numpy = [package.version for package in metadata.distributions(name="numpy")]
print(json.dumps({"version": "%d.%d" % sys.version_info[:2], "executable": sys.executable,
                  "numpy": numpy[0] if numpy else "",
                  **{name: sysconfig.get_config_var(name) or "" for name in names}}))
"""

_LAUNCHER = """#!/bin/sh
# Written by install.py. The stub that runs Python models must load the very libpython that its
# interpreter belongs to, and finds that interpreter (with its site-packages) as the first on PATH.
here=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
export PATH={interpreter_dir}:"$PATH"
# Each model is a process of its own: more threads in each only take turns on the same cores.
export OPENBLAS_NUM_THREADS="${{OPENBLAS_NUM_THREADS:-1}}"
export LD_LIBRARY_PATH="$here/pylib:$here/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
for argument in "$@"; do
  case "$argument" in
    --backend-directory|--backend-directory=*) exec "$here/libexec/tritonserver" "$@" ;;
  esac
done
exec "$here/libexec/tritonserver" "--backend-directory=$here/backends" "$@"
"""


class InstallError(Exception):
    """The server cannot be installed; the message names what is missing and the fix."""


@dataclass(frozen=True)
class Interpreter:
    """The Python that will run the models.

    Attributes:
        executable: its path, inside its virtual environment if it has one.
        version: `major.minor`, which chooses the stub.
        libpython: its shared library.
    """

    executable: Path
    version: str
    libpython: Path


def find_interpreter(python: str) -> Interpreter:
    """Ask an interpreter for its version and its shared library.

    Raises:
        InstallError: it does not start, is too old, has NumPy 2, or no shared library.
    """
    try:
        answer = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise InstallError(
            f"--python {python} does not run ({error}); name a Python 3.11 to 3.13"
        ) from error
    facts = json.loads(answer.stdout)
    if facts["version"] not in PYTHONS:
        raise InstallError(f"{python} is {facts['version']}; use one of {', '.join(PYTHONS)}")
    if facts["numpy"] and int(facts["numpy"].partition(".")[0]) > 1:
        # The server's stub was built for NumPy 1, and reads the size of a NumPy 2 array as zero.
        raise InstallError(
            f"{python} has NumPy {facts['numpy']}, with which this server sends empty tensors; "
            "install 'numpy<2' for it"
        )
    folder = Path(facts["LIBDIR"])
    soname = f"libpython{facts['version']}.so.1.0"
    for candidate in (folder / soname, folder / facts["MULTIARCH"] / soname):
        if candidate.is_file():
            return Interpreter(Path(facts["executable"]), facts["version"], candidate.resolve())
    raise InstallError(
        f"{soname} of {python} is not in {folder}; install the package "
        f"libpython{facts['version']} or name a Python built with --enable-shared"
    )


def find_source(source: str, download_dir: Path) -> Path:
    """Find the wheel file, or the folder it has been installed into.

    Args:
        source: `auto`, `download`, the path of a wheel, or a site-packages folder that holds it.
        download_dir: where a downloaded wheel is kept.

    Raises:
        InstallError: there is no such wheel or folder.
    """
    if source not in ("auto", "download"):
        path = Path(source)
        if path.is_file() or (path / SERVER).is_dir():
            return path
        raise InstallError(f"--source {source} is neither a wheel nor a folder with {SERVER}")
    spec = importlib.util.find_spec("pytriton") if source == "auto" else None
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent.parent
    return _download(download_dir)


def _download(folder: Path) -> Path:
    pattern = "nvidia_pytriton-" + WHEEL.partition("==")[2] + "-*.whl"
    for wheel in sorted(folder.glob(pattern)):
        return _verified(wheel)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        result = subprocess.run(
            [*command, "--dest", scratch, WHEEL], check=False, capture_output=True, text=True
        )
        wheels = sorted(Path(scratch).glob(pattern))
        if result.returncode != 0 or not wheels:
            last = (result.stderr.strip().splitlines() or ["no output"])[-1]
            raise InstallError(f"pip could not download {WHEEL}: {last}; name one with --source")
        return _verified(wheels[0]).rename(folder / wheels[0].name)


def _verified(wheel: Path) -> Path:
    """Return the wheel if its content is the pinned one."""
    actual = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if actual not in SHA256:
        raise InstallError(f"{wheel} has SHA-256 {actual}, not that of {WHEEL}; delete it")
    return wheel


def _members(source: Path, version: str) -> Iterator[tuple[str, str]]:
    """Yield (path in the wheel, path in the server folder) for what a server needs."""
    if source.is_file():
        with zipfile.ZipFile(source) as wheel:
            names = wheel.namelist()
    else:
        roots = (source / SERVER, source / LIBRARIES)
        files = (path for root in roots for path in root.rglob("*"))
        names = [str(path.relative_to(source)) for path in files if path.is_file()]
    stub = f"{SERVER}/python_backend_stubs/{version}/triton_python_backend_stub"
    if stub not in names:
        raise InstallError(f"{source} has no python backend stub for Python {version}")
    yield f"{SERVER}/bin/tritonserver", "libexec/tritonserver"
    yield stub, "backends/python/triton_python_backend_stub"
    for name in names:
        folder, _, leaf = name.rpartition("/")
        if leaf and folder == f"{SERVER}/backends/python":
            yield name, f"backends/python/{leaf}"
        elif leaf and folder == LIBRARIES:
            yield name, f"lib/{leaf}"


def _copy_server(source: Path, version: str, dest: Path) -> None:
    wheel = zipfile.ZipFile(source) if source.is_file() else None
    try:
        for name, target in _members(source, version):
            path = dest / target
            path.parent.mkdir(parents=True, exist_ok=True)
            if wheel is None:
                shutil.copyfile(source / name, path)
            else:
                with wheel.open(name) as packed, path.open("wb") as out:
                    shutil.copyfileobj(packed, out, 1 << 20)
            # The wheel's file modes are writable by all users; a server's files must not be.
            path.chmod(0o644 if path.suffix == ".py" else 0o755)
    finally:
        if wheel is not None:
            wheel.close()


def _finish_layout(interpreter: Interpreter, dest: Path) -> None:
    pylib = dest / "pylib"
    pylib.mkdir()
    # The folder has only this library: other libraries of the system must not replace the wheel's.
    (pylib / interpreter.libpython.name).symlink_to(interpreter.libpython)
    launcher = dest / "bin" / "tritonserver"
    launcher.parent.mkdir()
    folder = shlex.quote(str(interpreter.executable.parent))
    launcher.write_text(_LAUNCHER.format(interpreter_dir=folder), encoding="utf-8")
    launcher.chmod(0o755)


def _copy_backend(dest: Path) -> None:
    target, ignore = dest / "backends" / "tensorrtllm", shutil.ignore_patterns("__pycache__")
    for name, folder in FOLDERS.items():
        if folder.is_dir():
            shutil.copytree(folder, target / name, ignore=ignore)


def _stamp(source: Path, interpreter: Interpreter) -> str:
    """Hash everything that determines the layout: `install` keeps a layout with an equal hash."""
    digest = hashlib.sha256()
    size, python = source.stat().st_size, (str(interpreter.executable), str(interpreter.libpython))
    facts = (source.name, size, *python)
    digest.update(repr(facts).encode())
    sources = (p for folder in FOLDERS.values() for p in sorted(folder.rglob("*.py")))
    for path in (Path(__file__), *sources):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def install(source: Path, interpreter: Interpreter, dest: Path) -> bool:
    """Lay the server out at `dest`, replacing an older one only when the new one is complete.

    Returns:
        False when an equal layout was already there.

    Raises:
        InstallError: the source has no stub for this Python, or `dest` is something else.
    """
    stamp = _stamp(source, interpreter)
    marker = dest / "install.json"
    if marker.is_file() and json.loads(marker.read_text(encoding="utf-8")).get("stamp") == stamp:
        return False
    if dest.exists() and any(dest.iterdir()) and not marker.is_file():
        raise InstallError(f"--dest {dest} holds something else; name an empty or a new folder")
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=dest.parent, prefix=f".{dest.name}.") as scratch:
        fresh = Path(scratch) / "server"
        fresh.mkdir()
        _copy_server(source, interpreter.version, fresh)
        _finish_layout(interpreter, fresh)
        _copy_backend(fresh)
        (fresh / "install.json").write_text(json.dumps({"stamp": stamp}), encoding="utf-8")
        if dest.exists():
            dest.rename(Path(scratch) / "old")
        fresh.rename(dest)
    return True


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 when the server is in place, 2 with one sentence when not."""
    parser = argparse.ArgumentParser(description="Lay out a CPU tritonserver with backends")
    parser.add_argument("--dest", type=Path, required=True, help="the server's folder")
    parser.add_argument(
        "--source",
        default="auto",
        help=f"auto (installed {WHEEL}, else download), download, a wheel or a site-packages",
    )
    parser.add_argument("--download-dir", type=Path, help="default: wheels beside --dest")
    parser.add_argument("--python", default=sys.executable, help="the one that runs models")
    options = parser.parse_args(arguments)
    dest = options.dest.absolute()
    try:
        interpreter = find_interpreter(options.python)
        source = find_source(options.source, options.download_dir or dest.parent / "wheels")
        changed = install(source, interpreter, dest)
    except (InstallError, OSError, zipfile.BadZipFile) as error:
        print(f"install.py: {error}", file=sys.stderr)
        return 2
    print(f"{dest}/bin/tritonserver " + ("is in place" if changed else "was already in place"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
