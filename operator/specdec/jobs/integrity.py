"""Verify that the engines and checkpoints on the volume are complete and undamaged.

`publish` calls `check` before it publishes a repository that points at them. Damaged directories
are removed from the volume, and the operator then fetches or builds them again.
"""

import errno
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.api import names
from specdec.api.reasons import EngineReason, FetchReason, Reason
from specdec.jobs import manifests, volume
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.manifests import DamagedError, Files
from specdec.jobs.result import JobError

# Errors that concern the volume as a whole: `result` has its own advice for each.
_OF_THE_VOLUME = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT})

Folder = dict[str, Any]
"""A directory that servers read: a name for messages (`what`), its `path` below the volume, its
`files`, and whether any other file in it is an error (`exact`)."""


@dataclass(frozen=True)
class _UnusableEngine:
    """An engine that must be made again; `damage` is None if it is missing or incomplete."""

    engine: Mapping[str, Any]
    damage: str | None


def check(expected: Mapping[str, Any], root: Path, *, content: bool) -> list[Folder]:
    """Check all engines and checkpoints, and list the directories that servers read.

    Args:
        expected: the engines and checkpoints that the operator expects.
        root: of the volume.
        content: read every file; otherwise read only files modified after their manifest was
            written.

    Raises:
        JobError: CheckpointMissing, CheckpointDamaged, CheckpointUnreadable, EngineMissing,
            EngineDamaged or EngineUnreadable, naming role and file.
        OSError: the volume permits no access.
    """
    folders: list[Folder] = []
    unusable: list[_UnusableEngine] = []
    for engine in expected["engines"]:
        try:
            with readable_engine(engine):
                files = _engine(engine, root, content=content)
        except DamagedError as error:
            unusable.append(_UnusableEngine(engine, str(error)))
        else:
            if files is None:
                unusable.append(_UnusableEngine(engine, None))
            else:
                folders.append(_folder(engine, _name(engine), files))
    for item in unusable:
        # A build or fetch Job treats an existing directory as complete, so remove it.
        volume.discard(directory(item.engine, root))
    folders += _checkpoints(expected, unusable, root, content=content)
    if unusable:
        raise _error(unusable)
    return folders


def directory(artifact: Mapping[str, Any], root: Path) -> Path:
    """The directory of an engine or checkpoint below `root`, the mount point of the volume."""
    return root / Path(artifact["path"]).relative_to(names.VOLUME)


def readable_engine(engine: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Report an error of reading an engine as JobError (EngineUnreadable), with what to do."""
    again = f"the engine is {'fetched' if engine['prebuilt'] else 'built'} again"
    return _readable(EngineReason.ENGINE_UNREADABLE, _name(engine), engine["path"], again)


@contextmanager
def _readable(reason: Reason, name: str, directory_: str, again: str) -> Iterator[None]:
    """Report an error of reading an artifact with what a person can do; the artifact is kept.

    The error may pass, so that another attempt may read the file.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _OF_THE_VOLUME:
            raise
        path = Path(directory_).relative_to(names.VOLUME)
        raise JobError(
            reason,
            f"{name} cannot be read ({error}): check the volume; if the file stays unreadable, "
            f"delete {path} on the volume, so that {again}",
            permanent=False,
        ) from error


def _engine(engine: Mapping[str, Any], root: Path, *, content: bool) -> Files | None:
    """The files of an engine; None if it is incomplete."""
    folder = directory(engine, root)
    # A build writes the manifest last. A fetched directory appears complete or not at all.
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
    expected: Mapping[str, Any], unusable: list[_UnusableEngine], root: Path, *, content: bool
) -> Iterator[Folder]:
    """The checkpoints whose tokenizer the servers read.

    Checkpoints that an unusable engine is built from are checked in full. Other weights may be
    missing, because a server with engines does not need them.
    """
    without_weights = [engine["role"] for engine in expected["engines"] if engine["prebuilt"]]
    rebuilt = {item.engine["role"] for item in unusable if not item.engine["prebuilt"]}
    for role, checkpoint in expected.get("checkpoints", {}).items():
        is_build_input = role in rebuilt or (role == "heads" and rebuilt)
        if not is_build_input and not checkpoint["served"]:
            continue
        folder, kind = directory(checkpoint, root), ArtifactKind.of(role, without_weights)
        name, again = f"the checkpoint of the {role}", "the checkpoint is fetched again"
        if not folder.is_dir():
            raise JobError(
                FetchReason.CHECKPOINT_MISSING,
                f"{name} is missing on the volume and will be fetched again",
            )
        try:
            subset = kind if is_build_input else ArtifactKind.WITHOUT_WEIGHTS
            with _readable(FetchReason.CHECKPOINT_UNREADABLE, name, checkpoint["path"], again):
                files = manifests.checkpoint(folder, kind, subset, content=content)
        except DamagedError as error:
            volume.discard(folder)
            raise JobError(
                FetchReason.CHECKPOINT_DAMAGED,
                f"{name} is damaged ({error}) and will be fetched again",
            ) from error
        if checkpoint["served"]:
            yield _folder(checkpoint, name, files)


def _folder(artifact: Mapping[str, Any], name: str, files: Files) -> Folder:
    path = str(Path(artifact["path"]).relative_to(names.VOLUME))
    return {"what": name, "path": path, "files": files, "exact": False}


def _name(engine: Mapping[str, Any]) -> str:
    return f"the {engine['role']} engine {engine['key'][:16]}"


def _error(unusable: list[_UnusableEngine]) -> JobError:
    """The error that names all unusable engines; one damaged engine decides the reason."""
    sentences = []
    for item in unusable:
        action = "fetched" if item.engine["prebuilt"] else "built"
        state = "not complete on the volume" if item.damage is None else f"damaged ({item.damage})"
        sentences.append(f"{_name(item.engine)} is {state} and will be {action} again")
    reason = (
        EngineReason.ENGINE_DAMAGED
        if any(item.damage for item in unusable)
        else EngineReason.ENGINE_MISSING
    )
    roles = [item.engine["role"] for item in unusable]
    return JobError(reason, "; ".join(sentences), partial_result={"lost": roles})
