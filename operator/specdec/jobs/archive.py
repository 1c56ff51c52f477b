"""Unpack the tar layers of an OCI image into a directory of model files.

`oci` calls `unpack` for every layer that is an archive. Only regular files that belong to the
artifact are written; the unpacked size is bounded, so that a small archive cannot fill the volume.
"""

import gzip
import io
import shutil
import tarfile
from pathlib import Path
from typing import IO

from typing_extensions import override

from specdec.api.reasons import FetchReason
from specdec.jobs import volume
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.result import JobError

_FOLDER = "models/"
_WHITEOUT = ".wh."
_GZIP = b"\x1f\x8b"
# Weights hardly compress, and JSON compresses to a tenth. A higher ratio is an attack.
_RATIO = 50
_SLACK_BYTES = 64 << 20
# tarfile reads a header in a single call, whatever length the header declares, and content in
# blocks.
_READ_BYTES = 1 << 20


class _BombError(Exception):
    """The archive unpacks to more bytes than the files of a model do."""


class _Bounded(io.RawIOBase):
    """The unpacked bytes of an archive, with a limit on their total and on a single read."""

    def __init__(self, inner: IO[bytes] | gzip.GzipFile, limit: int) -> None:
        self._inner, self._limit = inner, limit

    @override
    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= _READ_BYTES:
            raise _BombError
        return self._checked(self._inner.read(size))

    def _checked(self, block: bytes) -> bytes:
        if self._inner.tell() > self._limit:
            raise _BombError
        return block

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        # Read in steps, so that the limit applies before a far offset is unpacked.
        while self._inner.tell() < offset:
            if not self.read(min(_READ_BYTES, offset - self._inner.tell())):
                break
        return self._inner.seek(offset, whence)

    @override
    def tell(self) -> int:
        return self._inner.tell()

    @override
    def seekable(self) -> bool:
        return True

    @override
    def readable(self) -> bool:
        return True


class _Archive(tarfile.TarFile):
    """An archive that is read once and keeps no members: millions would fill the memory."""

    members: list[tarfile.TarInfo]

    @override
    def next(self) -> tarfile.TarInfo | None:
        member = super().next()
        self.members, self.pax_headers = [], {}
        return member


def unpack(path: Path, folder: Path, kind: ArtifactKind, where: str) -> None:
    """Write the regular files at the archive's root, or in `models/`, into a directory.

    Other members are skipped, and no member name is followed as a path. A link, device or
    directory that has the name of a model file is an error, because that file would be missing
    later.

    Args:
        path: the archive.
        folder: receives the files.
        kind: selects the files by name.
        where: the source, for messages.

    Raises:
        JobError: SourceNotFound for such a link; CheckpointCorrupt if the file is no archive, is
            truncated, or unpacks beyond the limit.
    """
    try:
        with path.open("rb") as file, _opened(file) as packed:
            _write_members(packed, folder, kind, where)
    except _BombError as error:
        raise JobError(
            FetchReason.CHECKPOINT_CORRUPT,
            f"a layer of {where} unpacks to more than {_RATIO} times its size, or has headers of "
            "more than 1 MiB: pack only the model's files",
        ) from error
    except JobError:
        raise
    except Exception as error:
        # `tarfile` and `gzip` raise errors of many types on damaged archives. Errors of the system
        # are not the archive's fault.
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            raise
        raise JobError(
            FetchReason.CHECKPOINT_CORRUPT,
            f"a layer of {where} cannot be unpacked: it is truncated, damaged or no archive; pack "
            "it as tar or tar+gzip",
        ) from error


def _write_members(packed: tarfile.TarFile, folder: Path, kind: ArtifactKind, where: str) -> None:
    while (member := packed.next()) is not None:
        name = member.name.removeprefix("./").removeprefix("/").removeprefix(_FOLDER)
        if not kind.includes(name) or name.startswith(_WHITEOUT):
            continue
        if not member.isreg() or member.issparse():
            raise JobError(
                FetchReason.SOURCE_NOT_FOUND,
                f"{name} in {where} is a link or device, not a file: put the file itself into the "
                "layer",
            )
        volume.require_space(folder, member.size)
        _write(packed, member, folder / name)


def _opened(file: IO[bytes]) -> tarfile.TarFile:
    """Open a tar archive, with or without gzip, with its limit on unpacked bytes."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    zipped = file.read(len(_GZIP)) == _GZIP
    file.seek(0)
    if not zipped:
        return _Archive.open(fileobj=_Bounded(file, size), mode="r:")
    unpacked = gzip.GzipFile(fileobj=file)
    return _Archive.open(fileobj=_Bounded(unpacked, _RATIO * size + _SLACK_BYTES), mode="r:")


def _write(packed: tarfile.TarFile, member: tarfile.TarInfo, final: Path) -> None:
    reader = packed.extractfile(member)
    if reader is None:
        raise tarfile.ReadError(f"{member.name} has no content")
    part = final.with_name(f".{final.name}.part")
    try:
        with reader, part.open("wb") as writer:
            shutil.copyfileobj(reader, writer)
        part.rename(final)
    finally:
        part.unlink(missing_ok=True)
