"""List or delete what is unused on the volume: `python -m specdec.jobs.prune --keep JSON`.

`specdec prune` and the operator run this program in a Job. Checkpoints, engines and repositories
are directories with a content hash as name. If a deleted directory is needed again, the operator
downloads or builds it again. Names of unfinished ones begin with a dot: a later Job resumes them,
unless the spec has changed since.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from specdec.api import names
from specdec.api.reasons import CommonReason, FetchReason
from specdec.jobs import manifests, result, volume
from specdec.jobs.result import JobError

CHECKPOINTS, ENGINES, REPOSITORIES = (
    Path(folder).name for folder in (names.CHECKPOINTS, names.ENGINES, names.REPOSITORIES)
)
KINDS = (CHECKPOINTS, ENGINES, REPOSITORIES)
Keep = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Item:
    """A directory on the volume.

    Attributes:
        kind: the folder that it is in, one of KINDS.
        name: the content hash, or the name of an unfinished directory.
        bytes: of all its files.
        age: seconds since it was completed, or since the last write to an unfinished one.
        used: whether a resource uses it.
        deleted: whether this run has deleted it.
    """

    kind: str
    name: str
    bytes: int
    age: float
    used: bool
    deleted: bool = False


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 if the volume was read."""
    parser = argparse.ArgumentParser(description="List or delete what no resource uses")
    parser.add_argument("--keep", type=json.loads, required=True, help="names by kind")
    parser.add_argument("--only", type=json.loads, help="names by kind; default: everything")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before it starts")
    parser.add_argument("--older-than", type=float, required=True, help="seconds")
    parser.add_argument("--delete", action="store_true", help="delete; without it, only list")
    parser.add_argument("--volume", type=Path, default=Path(names.VOLUME))
    options = parser.parse_args(arguments)

    def work() -> dict[str, Any]:
        older = options.older_than if options.delete else None
        # During this delay the operator cancels the Job if a resource has changed.
        time.sleep(options.delay)
        items = list(prune(options.volume, options.keep, older, options.only))
        deleted = [item.bytes for item in items if item.deleted]
        counts = {"directories": len(items), "deleted": len(deleted), "bytes": sum(deleted)}
        return {"prune": counts}

    return result.run(work, CommonReason.INTERNAL)


def prune(
    root: Path, keep: Keep, older_than: float | None = None, only: Keep | None = None
) -> Iterator[Item]:
    """Yield each directory, deleted if due and printed as a line of JSON.

    Args:
        root: of the volume.
        keep: by kind, the names that a resource uses. A repository keeps what its manifest lists.
        older_than: delete what is unused and older than these seconds; None deletes nothing.
        only: by kind, the names to consider; None means all, and unfinished directories too.

    Raises:
        JobError: VolumeUnusable, if the manifest of a kept repository cannot be read. Nothing is
            deleted then.
    """
    used = {(kind, name) for kind in KINDS for name in keep.get(kind, ())}
    for repository in keep.get(REPOSITORIES, ()):
        used |= _listed(root, repository)
    for kind in KINDS:
        names_ = None if only is None else set(only.get(kind, ()))
        for folder in _folders(root / kind, names_):
            item = _item(folder, used)
            if older_than is not None and not item.used and item.age > older_than:
                _delete(root, folder)
                item = replace(item, deleted=True)
            print(json.dumps({"item": asdict(item)}), flush=True)
            yield item
    if older_than is not None:
        _delete_remains(root)


def _listed(root: Path, repository: str) -> set[tuple[str, str]]:
    """What the servers of a repository read."""
    path = root / REPOSITORIES / Path(names.manifest(repository)).name
    if not (root / REPOSITORIES / repository).is_dir():
        return set()  # it is not published yet, or was deleted
    try:
        folders = json.loads(path.read_bytes())["folders"]
        places = [Path(folder["path"]) for folder in folders]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JobError(
            FetchReason.VOLUME_UNUSABLE,
            f"repository {repository[:16]} is used and its manifest cannot be read ({error!r}), "
            "so nothing was deleted: delete its directory, and the operator publishes it again",
        ) from error
    return {(place.parts[0], place.parts[1]) for place in places if len(place.parts) == 2}


def _folders(folder: Path, only: Collection[str] | None) -> list[Path]:
    """The directories with these names; None means all but those that are set aside."""
    if not folder.is_dir():
        return []
    aside = set(folder.glob(volume.aside_name("*")))
    return sorted(
        entry
        for entry in folder.iterdir()
        if entry.is_dir() and (entry not in aside if only is None else entry.name in only)
    )


def _item(folder: Path, used: set[tuple[str, str]]) -> Item:
    content = [(path, path.lstat()) for path in folder.rglob("*")]
    size = sum(status.st_size for path, status in content if path.is_file())
    times = [folder.stat().st_mtime]
    if folder.name.startswith("."):
        times += [status.st_mtime for _, status in content]
    kind, name = folder.parent.name, folder.name
    return Item(kind, name, size, time.time() - max(times), (kind, name) in used)


def _delete_remains(root: Path) -> None:
    """Delete directories that a Job set aside for deletion but did not delete before it ended."""
    for kind in KINDS:
        for folder in (root / kind).glob(volume.aside_name("*")):
            shutil.rmtree(folder, ignore_errors=True)


def _delete(root: Path, folder: Path) -> None:
    volume.discard(folder)
    if folder.parent.name == REPOSITORIES:
        (root / REPOSITORIES / Path(names.manifest(folder.name)).name).unlink(missing_ok=True)
    elif folder.parent.name == CHECKPOINTS:
        manifests.checkpoint_manifest(folder).unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
