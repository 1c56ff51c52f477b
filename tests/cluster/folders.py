"""The tool's folders for binaries, clusters and images, all below one cache folder."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from cluster.errors import ClusterError

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?")


def cache() -> Path:
    """Return the project's cache folder, which may not exist yet."""
    if chosen := os.environ.get("SPECDEC_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(base) / "specdec").absolute()


def repository() -> Path:
    """Return the root of the checkout that holds this tool."""
    return Path(__file__).resolve().parents[2]


def clusters() -> Path:
    """Return the folder that contains a folder for each cluster."""
    return cache() / "clusters"


def cluster(name: str) -> Path:
    """Return the folder of the cluster called name.

    Raises:
        ClusterError: the name is not valid as a host name and interface name.
    """
    if not NAME.fullmatch(name):
        raise ClusterError(
            f"The cluster name {name!r} does not fit: use 1 to 20 lower-case letters, digits "
            "and inner hyphens."
        )
    return clusters() / name


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock file at path and hold it; the kernel frees the lock of a dead holder.

    A holder may remove the file as the last step before it releases the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_still(path, file.fileno()):
                yield
                return


def _is_still(path: Path, descriptor: int) -> bool:
    """Return whether path is still the open file: the previous holder may have removed it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    """Write text to path atomically, by renaming a temporary file; return path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.rename(path)
    return path
