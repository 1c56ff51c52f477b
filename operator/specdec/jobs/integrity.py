"""Whether the volume has what servers of a repository read, as it was built and fetched.

What is damaged is removed: the stages of the operator make what is missing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.api import names
from specdec.api.reasons import EngineReason, FetchReason
from specdec.jobs import manifests, volume
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.manifests import DamagedError, Files
from specdec.jobs.result import JobError

Folder = dict[str, Any]
"""A directory that servers read: `what` it is, its `path` below the volume, its `files`, and
whether it holds nothing else (`exact`)."""


@dataclass(frozen=True)
class _Lost:
    """An engine that has to be made again, and why."""

    engine: Mapping[str, Any]
    damage: str | None


def check(expected: Mapping[str, Any], root: Path, *, content: bool) -> list[Folder]:
    """The directories that servers read beside the repository.

    Args:
        expected: what the operator expects of engines and checkpoints.
        root: of the volume.
        content: read every file; else only those that changed after they were listed.

    Raises:
        JobError: CheckpointMissing, CheckpointDamaged, EngineMissing or EngineDamaged, naming role
            and file.
        OSError: a file cannot be read.
    """
    folders: list[Folder] = []
    lost: list[_Lost] = []
    for engine in expected["engines"]:
        try:
            files = _engine(engine, root, content=content)
        except DamagedError as error:
            lost.append(_Lost(engine, str(error)))
        else:
            if files is None:
                lost.append(_Lost(engine, None))
            else:
                folders.append(_folder(engine, _named(engine), files))
    for one in lost:
        # A build, or a fetch, takes a directory that is there for a complete one.
        volume.discard(place(one.engine, root))
    folders += _checkpoints(expected, lost, root, content=content)
    if lost:
        raise _error(lost)
    return folders


def place(one: Mapping[str, Any], root: Path) -> Path:
    """The directory of an engine or a checkpoint, wherever the volume is mounted here."""
    return root / Path(one["path"]).relative_to(names.VOLUME)


def _engine(engine: Mapping[str, Any], root: Path, *, content: bool) -> Files | None:
    """The files of an engine; None where it is not complete."""
    folder = place(engine, root)
    # Our own builds write the manifest last; a fetched directory is there whole or not at all.
    last = folder / ("config.json" if engine["prebuilt"] else manifests.ENGINE)
    if not last.is_file():
        return None
    if engine["prebuilt"]:
        return manifests.checkpoint(
            folder, ArtifactKind.ENGINE, ArtifactKind.ENGINE, content=content
        )
    files = manifests.engine(folder, content=content)
    if not (folder / "config.json").is_file():
        raise DamagedError("config.json is missing")
    return files


def _checkpoints(
    expected: Mapping[str, Any], lost: list[_Lost], root: Path, *, content: bool
) -> Iterator[Folder]:
    """The checkpoints that servers read a tokenizer of.

    Those that a lost engine is built from are compared too; others may be missing: who has the
    engines can spare the weights.
    """
    bare = [engine["role"] for engine in expected["engines"] if engine["prebuilt"]]
    built = {one.engine["role"] for one in lost if not one.engine["prebuilt"]}
    for role, one in expected.get("checkpoints", {}).items():
        read = role in built or (role == "heads" and built)
        if not read and not one["served"]:
            continue
        folder, kind = place(one, root), ArtifactKind.of(role, bare)
        if not folder.is_dir():
            raise JobError(
                FetchReason.CHECKPOINT_MISSING,
                f"the checkpoint of the {role} is missing from the volume: it is fetched again",
            )
        try:
            part = kind if read else ArtifactKind.WITHOUT_WEIGHTS
            files = manifests.checkpoint(folder, kind, part, content=content)
        except DamagedError as error:
            volume.discard(folder)
            raise JobError(
                FetchReason.CHECKPOINT_DAMAGED,
                f"the checkpoint of the {role} is damaged ({error}): it is fetched again",
            ) from error
        if one["served"]:
            yield _folder(one, f"the checkpoint of the {role}", files)


def _folder(one: Mapping[str, Any], what: str, files: Files) -> Folder:
    path = str(Path(one["path"]).relative_to(names.VOLUME))
    return {"what": what, "path": path, "files": files, "exact": False}


def _named(engine: Mapping[str, Any]) -> str:
    return f"the {engine['role']} engine {engine['key'][:16]}"


def _error(lost: list[_Lost]) -> JobError:
    """Which engines are to be made again; damage goes before absence."""
    sentences = []
    for one in lost:
        again = "fetched" if one.engine["prebuilt"] else "built"
        state = "not complete on the volume" if one.damage is None else f"damaged ({one.damage})"
        sentences.append(f"{_named(one.engine)} is {state}: it is {again} again")
    reason = (
        EngineReason.ENGINE_DAMAGED
        if any(one.damage for one in lost)
        else EngineReason.ENGINE_MISSING
    )
    roles = [one.engine["role"] for one in lost]
    return JobError(reason, "; ".join(sentences), told={"lost": roles})
