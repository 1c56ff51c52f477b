"""Layers that are archives: the files that count, and nothing that leads elsewhere."""

import shutil
import tarfile
from pathlib import Path

from specdec.jobs import volume
from specdec.jobs.kind import Kind
from specdec.jobs.result import JobError

_FOLDER = "models/"
_WHITEOUT = ".wh."


def unpack(path: Path, folder: Path, kind: Kind, where: str) -> None:
    """Write the regular files at the archive's top, or in `models/`, into a directory.

    Names are compared, never followed; links, devices and folders are not taken. A link that
    stands for a file that counts is refused, because the file would be missing later.

    Raises:
        JobError: SourceNotFound for such a link, CheckpointCorrupt for what is no archive.
    """
    try:
        with tarfile.open(path, "r:*") as packed:
            for member in packed:
                name = member.name.removeprefix("./").removeprefix("/").removeprefix(_FOLDER)
                if not kind.wants(name) or name.startswith(_WHITEOUT):
                    continue
                if not member.isreg():
                    raise JobError(
                        "SourceNotFound",
                        f"{name} in {where} is a link or no regular file: put the file itself "
                        "into the layer",
                    )
                volume.require_space(folder, member.size)
                _write(packed, member, folder / name)
    except tarfile.TarError as error:
        raise JobError(
            "CheckpointCorrupt",
            f"a layer of {where} cannot be unpacked ({error}): pack it as tar or tar+gzip",
        ) from error


def _write(packed: tarfile.TarFile, member: tarfile.TarInfo, final: Path) -> None:
    reader = packed.extractfile(member)
    if reader is None:
        raise tarfile.ReadError(f"{member.name} has no content")
    part = final.with_name(f".{final.name}.part")
    with reader, part.open("wb") as writer:
        shutil.copyfileobj(reader, writer)
    part.rename(final)
