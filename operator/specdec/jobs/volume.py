"""File operations on the volume: digests, copies, atomic renames, locks and free space.

All programs of this package that write to the volume use it. A directory with a final name is
complete, and on disk.
"""

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from specdec.api.reasons import FetchReason
from specdec.images.serving.check_volume import named
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.result import JobError

_BLOCK = 4 << 20
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})


def files(folder: Path, kind: ArtifactKind = ArtifactKind.CHECKPOINT) -> list[Path]:
    """The files of a kind in a directory, sorted by name; links count as the files they name."""
    return sorted(path for path in folder.iterdir() if kind.includes(path.name) and path.is_file())


def sha256(path: Path) -> str:
    """The SHA-256 (hex) of a file; an OSError names it."""
    with named(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(folder: Path, kind: ArtifactKind = ArtifactKind.CHECKPOINT) -> str:
    """The SHA-256 (hex) over the sorted names and contents of a directory's files of a kind."""
    return combined({path.name: sha256(path) for path in files(folder, kind)})


def combined(digests: Mapping[str, str]) -> str:
    """The digest of a directory, from the digests of its files."""
    total = hashlib.sha256()
    for name, sha256_ in sorted(digests.items()):
        total.update(f"{name}\0{sha256_}\n".encode())
    return total.hexdigest()


def size(folder: Path, kind: ArtifactKind = ArtifactKind.CHECKPOINT) -> int:
    """The total size in bytes of a directory's files of a kind."""
    return sum(path.stat().st_size for path in files(folder, kind))


def copy(source: Path, target: Path, kind: ArtifactKind) -> Iterator[int]:
    """Copy a directory's files of a kind, and yield the number of bytes of each written block.

    An OSError names the file.
    """
    for path in files(source, kind):
        copied = target / path.name
        with path.open("rb") as reader, named(copied), copied.open("wb") as writer:
            while block := _block(reader, path):
                writer.write(block)
                yield len(block)


def _block(reader: BinaryIO, path: Path) -> bytes:
    with named(path):
        return reader.read(_BLOCK)


def settle(scratch: Path, final: Path) -> None:
    """Rename a complete directory to its final name, after its content is on disk.

    All files are made readable for every user; files behind links keep their rights. An existing
    directory with that name has the same content, so it is kept.
    """
    for path in (p for p in scratch.iterdir() if p.is_file() and not p.is_symlink()):
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


def aside_name(name: str) -> str:
    """The temporary name of directory `name` while it is being removed."""
    return f".{name}.damaged"


def discard(folder: Path) -> None:
    """Remove a directory by renaming it first, so that no process opens a partial one."""
    aside = folder.with_name(aside_name(folder.name))
    shutil.rmtree(aside, ignore_errors=True)
    try:
        folder.rename(aside)
    except FileNotFoundError:
        return
    print(f"removed {folder}", flush=True)
    shutil.rmtree(aside, ignore_errors=True)


def require_space(folder: Path, needed: int) -> None:
    """Raise JobError (VolumeFull) if the volume has less than `needed` free bytes."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise JobError(
            FetchReason.VOLUME_FULL,
            f"the volume has {free / 1e6:.0f} MB free and the checkpoints need "
            f"{needed / 1e6:.0f} MB more: enlarge the claim or free space on it",
            permanent=False,
        )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two Jobs never fill the same directory.

    A file system without locks is used unlocked. The rename to a final name still guarantees
    complete directories there.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            print(f"continuing without file locks: {error.strerror} on this volume", flush=True)
        yield


def sync(path: Path) -> None:
    """Wait until a file or a directory is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with named(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
