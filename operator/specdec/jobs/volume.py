"""Directories of checkpoints on a volume: what counts, their digest, complete or not there."""

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from specdec.jobs.result import JobError

# What a served model needs: configuration, weights, tokenizer. The same list filters a hub
# repository and a directory, so that equal checkpoints get equal digests.
PATTERNS = (
    "*.json",
    "*.safetensors",
    "*.model",
    "tokenizer*",
    "merges.txt",
    "vocab.txt",
    "*.jinja",
)
_BLOCK = 4 << 20
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})


def wanted(name: str) -> bool:
    """Whether a file directly inside a checkpoint directory belongs to the checkpoint."""
    return not name.startswith(".") and any(fnmatchcase(name, pattern) for pattern in PATTERNS)


def files(folder: Path) -> list[Path]:
    """The files of a checkpoint, sorted by name; links count as what they point to."""
    return sorted(path for path in folder.iterdir() if wanted(path.name) and path.is_file())


def sha256(path: Path) -> str:
    """sha256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(folder: Path) -> str:
    """sha256 (hex) over the sorted names and contents of a checkpoint's files."""
    total = hashlib.sha256()
    for path in files(folder):
        total.update(f"{path.name}\0{sha256(path)}\n".encode())
    return total.hexdigest()


def size(folder: Path) -> int:
    """Bytes of a checkpoint's files."""
    return sum(path.stat().st_size for path in files(folder))


def copy(source: Path, target: Path) -> Iterator[int]:
    """Copy a checkpoint's files, yielding bytes as they are written."""
    for path in files(source):
        with path.open("rb") as reader, (target / path.name).open("wb") as writer:
            while block := reader.read(_BLOCK):
                writer.write(block)
                yield len(block)


def settle(scratch: Path, final: Path) -> None:
    """Give a finished directory its final name: all bytes are on disk first, readable by all.

    A directory that is already there under that name has the same content; it stays.
    """
    for path in files(scratch):
        path.chmod(0o644)
        sync(path)
    scratch.chmod(0o755)
    sync(scratch)
    try:
        scratch.rename(final)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        shutil.rmtree(scratch)
    sync(final.parent)


def require_space(folder: Path, needed: int) -> None:
    """Refuse early what cannot fit.

    Raises:
        JobError: `VolumeFull`, with both figures.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise JobError(
            "VolumeFull",
            f"the volume has {free / 1e6:.0f} MB free and the checkpoint needs "
            f"{needed / 1e6:.0f} MB more: enlarge the claim or free space on it",
            permanent=False,
        )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file: two Jobs never fill the same directory.

    On a file system without locks the work goes on unlocked; renaming still keeps what has a
    final name complete.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            print(f"the volume has no file locks ({error.strerror}), going on without", flush=True)
        yield


def sync(path: Path) -> None:
    """Wait until a file or a directory is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
