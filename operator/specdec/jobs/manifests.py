"""Read and write manifests: lists of a directory's files with their sizes and SHA-256.

A build writes the manifest of an engine, and `fetch` that of a checkpoint. `integrity` compares
the directories with these manifests. `publish` writes one more manifest, with modification times,
of everything that servers read. A server compares its volume with this last manifest at start
(`images/serving/check_volume.py`).
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specdec.images.serving.check_volume import differences, named
from specdec.jobs import volume
from specdec.jobs.artifact_kind import ArtifactKind

ENGINE = "manifest.json"
_MAX_DIFFERENCES = 3

Files = dict[str, dict[str, Any]]
"""By path: `bytes`, `sha256` (hex; None if unknown), `mtime` (ns; None means: read the file)."""


class DamagedError(Exception):
    """A directory differs from its manifest; the message names the files."""


def describe(paths: Iterable[Path]) -> Files:
    """Sizes and digests of files, by name."""
    return {
        path.name: {"bytes": path.stat().st_size, "sha256": volume.sha256(path)} for path in paths
    }


def digest(files: Files) -> str:
    """The digest of the directory that has these files, as `volume.digest` computes it."""
    return volume.combined({name: entry["sha256"] for name, entry in files.items()})


def checkpoint_manifest(folder: Path) -> Path:
    """The manifest of a checkpoint. It is beside the directory, whose digest covers every file."""
    return folder.with_name(f".manifest-{folder.name}.json")


def engine(folder: Path, *, content: bool) -> Files:
    """Compare a built engine with its manifest, and return its files.

    Args:
        folder: of the engine, with a manifest.
        content: read every file, regardless of its modification time.

    Raises:
        DamagedError: a file is missing or differs.
        OSError: a file cannot be read.
    """
    listed = _read(folder / ENGINE)
    if listed is None:
        raise DamagedError(f"{ENGINE} is not readable")
    return _verified(folder, *listed, content=content)


def checkpoint(folder: Path, kind: ArtifactKind, subset: ArtifactKind, *, content: bool) -> Files:
    """Compare a checkpoint or a prebuilt engine with its manifest, and return its files.

    Earlier releases wrote no manifest. With `content`, all files are then read and compared with
    the directory's name, which is the digest of all of them.

    Args:
        folder: of the checkpoint, named after its digest.
        kind: of the checkpoint.
        subset: selects the files to compare and return.
        content: read every file, regardless of its modification time.

    Raises:
        DamagedError: a file is missing or differs.
        OSError: a file cannot be read.
    """
    listed = _read(checkpoint_manifest(folder))
    if listed is not None and digest(listed[0]) == folder.name:
        files = {name: entry for name, entry in listed[0].items() if subset.includes(name)}
        return _verified(folder, files, listed[1], content=content)
    present = volume.files(folder, kind)
    if not content:
        return stamped(folder, {path.name: None for path in present if subset.includes(path.name)})
    files = describe(present)
    if digest(files) != folder.name:
        raise DamagedError("its files do not match its digest")
    write(checkpoint_manifest(folder), {"files": files})
    return stamped(folder, {n: e["sha256"] for n, e in files.items() if subset.includes(n)})


def stamped(folder: Path, digests: Mapping[str, str | None]) -> Files:
    """The entries of files by path: current size, modification time and the given digest."""
    stats = {name: (folder / name).stat() for name in digests}
    return {
        name: {"bytes": stats[name].st_size, "mtime": stats[name].st_mtime_ns, "sha256": sha256}
        for name, sha256 in digests.items()
    }


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Write a manifest; the file appears complete or not at all."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with named(scratch):
        scratch.write_text(json.dumps(value, separators=(",", ":")), encoding="utf-8")
    scratch.chmod(0o644)
    volume.sync(scratch)
    scratch.rename(path)


def _verified(folder: Path, files: Files, written: int, *, content: bool) -> Files:
    """Compare a directory with its entries, and return them with modification times.

    Files modified after the manifest was written are read, even without `content`.
    """
    times = {name: _modified(folder / name) for name in files}
    trusted = {name: None if content or time > written else time for name, time in times.items()}
    expected = {name: {**entry, "mtime": trusted[name]} for name, entry in files.items()}
    if different := list(differences(folder, expected)):
        raise DamagedError(", ".join(different[:_MAX_DIFFERENCES]))
    return {name: {**entry, "mtime": times[name]} for name, entry in files.items()}


def _modified(path: Path) -> int:
    """The modification time in ns; 0 for a missing file, which `differences` then reports."""
    try:
        return path.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _read(path: Path) -> tuple[Files, int] | None:
    """The entries of a manifest and its modification time (ns); None if it cannot be read."""
    try:
        with named(path):
            value = json.loads(path.read_bytes())
        written = path.stat().st_mtime_ns
    except (FileNotFoundError, ValueError):
        return None
    files = value.get("files", {}) if isinstance(value, dict) else None
    if not isinstance(files, dict) or not all(map(_is_valid, files, files.values())):
        return None
    return {name: {k: entry[k] for k in ("bytes", "sha256")} for name, entry in files.items()}, (
        written
    )


def _is_valid(name: str, entry: Any) -> bool:
    """Whether an entry has the form that this module writes: plain name, size and digest."""
    match entry:
        case {"bytes": int(), "sha256": str()}:
            return Path(name).name == name and name not in ("", "..")
        case _:
            return False
