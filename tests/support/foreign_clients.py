"""Installs OpenAI clients of others, for tests: `python -m support.foreign_clients`.

Each client is an environment of its own in the cache, because it needs other versions of packages
than the tests. Its pins, `client-NAME.txt`, have the version of every package. An installation
appears by a rename when it is complete, and nothing changes it later.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster import folders
from cluster.progress import report

CLIENTS = ("langchain", "litellm", "aiperf")
_TIMEOUT_SECONDS = 1800


class ClientError(Exception):
    """A client cannot be installed; the message has the reason."""


def available(name: str) -> Path | None:
    """Return the folder of an installed client, or None if it is missing or its pins changed."""
    folder = _folder(name)
    return folder if folder.is_dir() else None


def require(name: str) -> Path:
    """Return the folder of a client; skip a test where it is not installed."""
    folder = available(name)
    if folder is None:
        pytest.skip(f"{name} is not installed; run `python -m support.foreign_clients {name}`")
    return folder


def program(name: str, *arguments: str) -> Any:
    """Return the JSON that a client's program prints.

    Raises:
        AssertionError: the program failed; with the end of what it wrote.
    """
    path = Path(__file__).parent / "foreign_programs" / f"{name}_program.py"
    command = [str(require(name) / "bin" / "python"), "-I", str(path), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, env=_environment()
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().rpartition("\n")[2])


def install(name: str) -> Path:
    """Install a client unless it is there.

    Raises:
        ClientError: a package cannot be installed.
    """
    folder = _folder(name)
    with folders.locked(folder.parent / "lock"):
        if present := available(name):
            return present
        report(f"{name}: installing the packages of {_pins(name).name}")
        new = folder.with_name(f".{name}")
        shutil.rmtree(new, ignore_errors=True)
        try:
            _run(sys.executable, "-m", "venv", "--without-pip", str(new))
            pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
            own = ("--python", str(new / "bin" / "python"), "install", "--no-deps")
            _run(*pip, *own, "--only-binary", ":all:", "-r", str(_pins(name)))
            new.rename(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return folder


def _folder(name: str) -> Path:
    digest = hashlib.sha256(_pins(name).read_bytes()).hexdigest()
    return folders.cache() / "clients" / f"{name}-{digest[:12]}"


def _pins(name: str) -> Path:
    return Path(__file__).with_name(f"client-{name}.txt")


def _environment() -> dict[str, str]:
    """Return the variables of a client, which sends nothing to other machines."""
    return {**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}


def _run(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, env=_environment()
    )
    if done.returncode != 0:
        raise ClientError((done.stderr or done.stdout).strip().rpartition("\n")[2])


def main(names: Sequence[str]) -> int:
    """Install clients, by default all; return the exit code."""
    try:
        for name in names or CLIENTS:
            report(f"{name}: {install(name)}")
    except ClientError as error:
        report(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
