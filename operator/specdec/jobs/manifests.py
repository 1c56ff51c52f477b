"""Lists of a directory's files on the volume, and whether the directory is as they say.

An engine's is written by its build, a checkpoint's when it has arrived: names, sizes and SHA-256.
What servers of a repository read is listed once more when it is published, with modification
times: that list is what a server's start is compared with (`payload/serving/check_volume.py`).
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specdec.jobs import volume
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.payload.serving.check_volume import differences

ENGINE = "manifest.json"
_LISTED = 3

Files = dict[str, dict[str, Any]]
"""By path: `bytes`, `sha256` (hex, None where it is not known) and `mtime` (ns, None to read)."""


class DamagedError(Exception):
    """A directory is not what it was when it was completed; the message names the files."""


def describe(paths: Iterable[Path]) -> Files:
    """Sizes and digests of files, by name."""
    return {
        path.name: {"bytes": path.stat().st_size, "sha256": volume.sha256(path)} for path in paths
    }


def digest(files: Files) -> str:
    """The digest of the directory that has these files: `volume.digest`."""
    return volume.combined({name: entry["sha256"] for name, entry in files.items()})


def of_checkpoint(folder: Path) -> Path:
    """The list of a checkpoint's files, beside it: its digest is of its own files alone."""
    return folder.with_name(f".manifest-{folder.name}.json")


def engine(folder: Path, *, content: bool) -> Files:
    """The files of a built engine, compared with its manifest.

    Args:
        folder: of the engine, with a manifest.
        content: read every file, whatever its modification time.

    Raises:
        DamagedError: a file is missing or differs.
        OSError: a file cannot be read.
    """
    listed = _read(folder / ENGINE)
    if listed is None:
        raise DamagedError(f"{ENGINE} is not readable")
    return _verified(folder, *listed, content=content)


def checkpoint(folder: Path, kind: ArtifactKind, part: ArtifactKind, *, content: bool) -> Files:
    """Files of a checkpoint or of a prebuilt engine, compared with their list.

    Where an earlier release left no list, files are read when content counts, all of them: the
    directory's name is the digest of all.

    Args:
        folder: of the checkpoint, named after its digest.
        kind: of the checkpoint.
        part: which of its files.
        content: read every file, whatever its modification time.

    Raises:
        DamagedError: a file is missing or differs.
        OSError: a file cannot be read.
    """
    listed = _read(of_checkpoint(folder))
    if listed is not None and digest(listed[0]) == folder.name:
        files = {name: entry for name, entry in listed[0].items() if part.includes(name)}
        return _verified(folder, files, listed[1], content=content)
    present = volume.files(folder, kind)
    if not content:
        return stamped(folder, {path.name: None for path in present if part.includes(path.name)})
    files = describe(present)
    if digest(files) != folder.name:
        raise DamagedError("its files are not those that its digest names")
    write(of_checkpoint(folder), {"files": files})
    return stamped(folder, {n: e["sha256"] for n, e in files.items() if part.includes(n)})


def stamped(folder: Path, digests: Mapping[str, str | None]) -> Files:
    """Sizes and modification times of files, by path, beside the digests that are known."""
    stats = {name: (folder / name).stat() for name in digests}
    return {
        name: {"bytes": stats[name].st_size, "mtime": stats[name].st_mtime_ns, "sha256": sha256}
        for name, sha256 in digests.items()
    }


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Write a list; it appears complete or not at all."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    scratch.write_text(json.dumps(value, separators=(",", ":")), encoding="utf-8")
    scratch.chmod(0o644)
    volume.sync(scratch)
    scratch.rename(path)


def _verified(folder: Path, files: Files, written: int, *, content: bool) -> Files:
    """The files with their modification times; what changed after the list was written is read."""
    times = {name: _modified(folder / name) for name in files}
    known = {name: None if content or time > written else time for name, time in times.items()}
    expected = {name: {**entry, "mtime": known[name]} for name, entry in files.items()}
    if found := list(differences(folder, expected)):
        raise DamagedError(", ".join(found[:_LISTED]))
    return {name: {**entry, "mtime": times[name]} for name, entry in files.items()}


def _modified(path: Path) -> int:
    """When a file was changed last (ns); what is missing is found to be so later."""
    try:
        return path.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _read(path: Path) -> tuple[Files, int] | None:
    """A list of files and when it was written (ns); None unless there is a readable one."""
    try:
        value = json.loads(path.read_bytes())
        written = path.stat().st_mtime_ns
    except (FileNotFoundError, ValueError):
        return None
    files = value.get("files", {}) if isinstance(value, dict) else None
    if not isinstance(files, dict) or not all(map(_sound, files, files.values())):
        return None
    return {name: {k: entry[k] for k in ("bytes", "sha256")} for name, entry in files.items()}, (
        written
    )


def _sound(name: str, entry: Any) -> bool:
    """Whether an entry is one that we write: a plain name, a size and a digest."""
    match entry:
        case {"bytes": int(), "sha256": str()}:
            return Path(name).name == name and name not in ("", "..")
        case _:
            return False
