"""Adds the suffix trees of `arctic-inference` to an installation of vLLM, for its method `suffix`.

The package has no wheel. Its own build needs PyTorch 2.7, CMake and gRPC for parts that vLLM does
not use, so this module compiles only the suffix trees: two C++ files, and those of nanobind. It
also leaves out the package's plugin, which would replace parts of vLLM.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

PINS = Path(__file__).with_name("vllm-suffix.txt")
# Bytes.
DOWNLOAD = 122_018 + 243_830
_MODULES = ("__init__.py", "suffix_decoding/__init__.py", "suffix_decoding/cache.py")


def install(site_packages: Path) -> None:
    """Compile the suffix trees into `site_packages`, which has PyTorch and setuptools.

    Raises:
        subprocess.CalledProcessError: a download or the compiler failed; `stderr` has the reason.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source, nanobind = _download(folder, site_packages)
        package = folder / "package"
        for module in _MODULES:
            (package / module).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / "arctic_inference" / module, package / module)
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        extension = package / "suffix_decoding" / f"_C{suffix}"
        _compile(source / "csrc" / "suffix_decoding", nanobind, extension)
        shutil.copytree(package, site_packages / "arctic_inference")


def _download(folder: Path, site_packages: Path) -> tuple[Path, Path]:
    """Return the unpacked sources of both packages."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    # pip asks a source package for its metadata, which here needs PyTorch of the installation.
    pip += ["--no-deps", "--no-build-isolation", "--require-hashes", "--dest", str(folder)]
    _run(*pip, "-r", str(PINS), PYTHONPATH=str(site_packages))
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    shutil.unpack_archive(next(folder.glob("*.whl")), folder, "zip")
    return next(folder.glob("arctic_inference-*/")), folder / "nanobind"


def _compile(source: Path, nanobind: Path, extension: Path) -> None:
    includes = [
        sysconfig.get_path("include"),
        str(nanobind / "include"),
        str(nanobind / "ext" / "robin_map" / "include"),
    ]
    files = [
        source / "bindings.cc",
        source / "suffix_tree.cc",
        nanobind / "src" / "nb_combined.cpp",
    ]
    options = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w", "-DNDEBUG"]
    options += [f"-I{include}" for include in includes]
    _run("c++", *options, *map(str, files), "-o", str(extension))


def _run(*command: str, **environment: str) -> None:
    subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, **environment}
    )
