"""Layers that are archives: the files that count, and nothing that leads elsewhere."""

import gzip
import io
import shutil
import tarfile
import zlib
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
# Weights hardly shrink and JSON shrinks to a tenth; what swells more than this is made to.
_RATIO = 50
_SLACK_BYTES = 64 << 20
# tarfile reads a header in one piece, however long it says it is, and content in small ones.
_READ_BYTES = 1 << 20


class _BombError(Exception):
    """An archive that is larger inside than any model's."""


class _Bounded(io.RawIOBase):
    """An archive's bytes, unpacked, up to a limit; what is read in one piece has one too."""

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
        # In steps: the far end of a swollen archive takes minutes to reach.
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
    """An archive that is read once: what it remembers of millions of members fills the memory."""

    members: list[tarfile.TarInfo]

    @override
    def next(self) -> tarfile.TarInfo | None:
        member = super().next()
        self.members, self.pax_headers = [], {}
        return member


def unpack(path: Path, folder: Path, kind: ArtifactKind, where: str) -> None:
    """Write the regular files at the archive's top, or in `models/`, into a directory.

    Names are compared, never followed; links, devices and folders are not taken. A link that
    stands for a file that counts is refused, because the file would be missing later.

    Raises:
        JobError: SourceNotFound for such a link, CheckpointCorrupt for what is no archive, is cut
            short or swells beyond what files of a model do.
    """
    try:
        with path.open("rb") as file, _opened(file) as packed:
            while (member := packed.next()) is not None:
                name = member.name.removeprefix("./").removeprefix("/").removeprefix(_FOLDER)
                if not kind.includes(name) or name.startswith(_WHITEOUT):
                    continue
                if not member.isreg() or member.issparse():
                    raise JobError(
                        FetchReason.SOURCE_NOT_FOUND,
                        f"{name} in {where} is a link or no regular file: put the file itself "
                        "into the layer",
                    )
                volume.require_space(folder, member.size)
                _write(packed, member, folder / name)
    except _BombError as error:
        raise JobError(
            FetchReason.CHECKPOINT_CORRUPT,
            f"a layer of {where} unpacks to more than {_RATIO} times its size, or has headers of "
            "more than 1 MiB: pack the model's files alone",
        ) from error
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise JobError(
            FetchReason.CHECKPOINT_CORRUPT,
            f"a layer of {where} cannot be unpacked: it is cut short, damaged or no archive; pack "
            "it as tar or tar+gzip",
        ) from error


def _opened(file: IO[bytes]) -> tarfile.TarFile:
    """The archive in a file, which is packed with gzip or not at all."""
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
