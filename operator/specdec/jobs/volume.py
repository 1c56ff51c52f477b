"""Directories of checkpoints on a volume: what counts, their digest, complete or not there."""

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from specdec.api.reasons import FetchReason
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.result import JobError

_BLOCK = 4 << 20
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})


def files(folder: Path, kind: ArtifactKind = ArtifactKind.CHECKPOINT) -> list[Path]:
    """The files of its kind, sorted by name; links count as what they point to."""
    return sorted(path for path in folder.iterdir() if kind.includes(path.name) and path.is_file())


def sha256(path: Path) -> str:
    """sha256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(folder: Path, kind: ArtifactKind = ArtifactKind.CHECKPOINT) -> str:
    """sha256 (hex) over the sorted names and contents of a directory's files of its kind."""
    return combined({path.name: sha256(path) for path in files(folder, kind)})


def combined(digests: Mapping[str, str]) -> str:
    """The digest of a directory by those of its files."""
    total = hashlib.sha256()
    for name, sha256_ in sorted(digests.items()):
        total.update(f"{name}\0{sha256_}\n".encode())
    return total.hexdigest()


def size(folder: Path, kind: ArtifactKind = ArtifactKind.CHECKPOINT) -> int:
    """Bytes of a directory's files of its kind."""
    return sum(path.stat().st_size for path in files(folder, kind))


def copy(source: Path, target: Path, kind: ArtifactKind) -> Iterator[int]:
    """Copy a directory's files of its kind, yielding bytes as they are written."""
    for path in files(source, kind):
        with path.open("rb") as reader, (target / path.name).open("wb") as writer:
            while block := reader.read(_BLOCK):
                writer.write(block)
                yield len(block)


def settle(scratch: Path, final: Path) -> None:
    """Give a finished directory its final name: all bytes are on disk first, readable by all.

    A directory that is already there under that name has the same content; it stays.
    """
    for path in (p for p in scratch.iterdir() if p.is_file()):
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


def discard(folder: Path) -> None:
    """Remove a directory: whoever has its files open keeps them, nobody opens half of it."""
    aside = folder.with_name(f".{folder.name}.damaged")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        folder.rename(aside)
    except FileNotFoundError:
        return
    print(f"removed {folder}", flush=True)
    shutil.rmtree(aside, ignore_errors=True)


def require_space(folder: Path, needed: int) -> None:
    """Refuse early what cannot fit.

    Raises:
        JobError: `VolumeFull`, with both figures.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise JobError(
            FetchReason.VOLUME_FULL,
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
