"""Bring checkpoints onto the volume: `python -m specdec.jobs.fetch --plan JSON`.

Each lands in `checkpoints/<digest>`, where the digest is that of its content: whatever its source,
an equal checkpoint is there once. It is filled in a hidden directory beside it, which survives a
killed Job so that the next one downloads only the files that are missing, and renamed when it is
whole and inspected.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.api import names
from specdec.api.networks import Networks
from specdec.api.reasons import FetchReason
from specdec.jobs import manifests, result, sources, volume
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.download import Listing, Remote, unreachable
from specdec.jobs.egress_proxy import EgressProxy
from specdec.jobs.inspection import inspect
from specdec.jobs.manifests import DamagedError
from specdec.jobs.result import JobError, progress

_ENGINES_TOLD = 60
_PUBLIC = Networks()


@dataclass(frozen=True)
class Fetched:
    """One checkpoint on the volume."""

    digest: str
    revision: str
    bytes: int
    facts: dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 when everything is on the volume, whether it fits or not."""
    parser = argparse.ArgumentParser(description="Bring checkpoints onto the volume")
    parser.add_argument("--plan", required=True, help="sources by role, as JSON")
    parser.add_argument("--volume", type=Path, default=Path(names.VOLUME))
    parser.add_argument("--sources", type=Path, default=Path("/sources"))
    parser.add_argument("--allow", action="append", default=[], help="network (CIDR) to reach too")
    options = parser.parse_args(arguments)
    plan, networks = json.loads(options.plan), Networks.parse(options.allow)
    return result.run(
        lambda: fetch(plan, options.volume, options.sources, networks), FetchReason.FETCH_FAILED
    )


def fetch(
    plan: Mapping[str, Any], root: Path, mounts: Path, networks: Networks = _PUBLIC
) -> dict[str, Any]:
    """Fetch everything the plan names and look at it; whether it fits is judged elsewhere.

    `networks` are those that sources may lead to beside public addresses.

    Raises:
        JobError: a source cannot be had, or is not a checkpoint this release can build.
    """
    checkpoints = root / Path(names.CHECKPOINTS).name
    checkpoints.mkdir(parents=True, exist_ok=True)
    bare = plan.get("withoutWeights", ())
    models = {
        role: _model(role, ArtifactKind.of(role, bare), source, checkpoints, mounts, networks)
        for role, source in plan["models"].items()
    }
    return {
        "models": {role: vars(model) for role, model in models.items()},
        "engines": engines(root),
    }


def engines(root: Path) -> list[str]:
    """The first 16 hex digits of the key of every complete engine on the volume, newest first."""
    folder = root / Path(names.ENGINES).name
    complete = [
        path.parent
        for path in folder.glob("*/manifest.json")
        if not path.parent.name.startswith(".")
    ]
    newest = sorted(complete, key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.name[:16] for path in newest[:_ENGINES_TOLD]]


def _model(
    role: str,
    kind: ArtifactKind,
    source: Mapping[str, Any],
    checkpoints: Path,
    mounts: Path,
    networks: Networks,
) -> Fetched:
    if "pvc" in source:
        return _from_claim(role, kind, source["pvc"], checkpoints, mounts / role)
    with EgressProxy(networks) as guard:
        try:
            return _from_remote(role, kind, source, checkpoints, guard)
        except JobError as error:
            raise guard.explained(error, f"the source of the {role}") from error


def _from_remote(
    role: str, kind: ArtifactKind, source: Mapping[str, Any], checkpoints: Path, guard: EgressProxy
) -> Fetched:
    with sources.remote(role, kind, source, guard) as where:
        listing = _listing(where, role)
        # Without a name of its own, the same files under two roles are two things.
        own = [] if kind is ArtifactKind.CHECKPOINT else [kind.name]
        key = names.digest([*listing.identity, *own])[:32]
        with volume.locked(checkpoints / f".lock-{key}"):
            index = checkpoints / f".index-{key}.json"
            known = _indexed(index, checkpoints, kind)
            if known is not None:
                progress("download", 100, f"{role} is on the volume already")
                return _seen(known, listing.revision, kind)
            scratch = checkpoints / f".download-{key}"
            _download(where, listing, scratch)
            fetched = _settle(scratch, checkpoints, listing.revision, role, kind)
            _write(index, json.dumps({"digest": fetched.digest}))
            return fetched


def _listing(where: Remote, role: str) -> Listing:
    """What a source holds; it comes from a server, so its shape may be any."""
    try:
        return where.resolve()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        why = "its answer is not what such a server answers"
        raise unreachable(f"the source of the {role}", why) from error


def _download(where: Remote, listing: Listing, scratch: Path) -> None:
    scratch.mkdir(exist_ok=True)
    # Half files of an earlier release, which nothing can go on with.
    shutil.rmtree(scratch / ".cache", ignore_errors=True)
    arrived = sum(p.stat().st_size for p in scratch.rglob("*") if p.is_file())
    volume.require_space(scratch, listing.bytes - arrived)
    where.download(listing, scratch)


def _from_claim(
    role: str, kind: ArtifactKind, source: Mapping[str, Any], checkpoints: Path, mount: Path
) -> Fetched:
    folder = _directory(mount, source["path"], role, kind)
    progress("digest", 0, role)
    digest = volume.digest(folder, kind)
    final = checkpoints / digest
    if _intact(final, kind):
        progress("copy", 100, f"{role} is on the volume already")
        return _seen(final, digest[:12], kind)
    # Inspected before the copy too: a wrong directory costs no space.
    inspect(folder, kind)
    with volume.locked(checkpoints / f".lock-{digest[:32]}"):
        scratch = checkpoints / f".copy-{digest[:32]}"
        shutil.rmtree(scratch, ignore_errors=True)
        total = volume.size(folder, kind)
        volume.require_space(checkpoints, total)
        scratch.mkdir()
        try:
            _copy(folder, scratch, total, role, kind)
            return _settle(scratch, checkpoints, digest[:12], role, kind)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _copy(folder: Path, scratch: Path, total: int, role: str, kind: ArtifactKind) -> None:
    copied, told = 0, -1
    for count in volume.copy(folder, scratch, kind):
        copied += count
        percent = 100 * copied // max(total, 1)
        if percent // 10 > told:
            told = percent // 10
            progress("copy", percent, role)


def _settle(
    scratch: Path, checkpoints: Path, revision: str, role: str, kind: ArtifactKind
) -> Fetched:
    """Inspect what has arrived and give it its final name."""
    progress("inspect", 0, role)
    try:
        facts = inspect(scratch, kind)
    except JobError:
        # What is corrupt is fetched from the start the next time.
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    files, size = manifests.describe(volume.files(scratch, kind)), volume.size(scratch, kind)
    digest = manifests.digest(files)
    final = checkpoints / digest
    if not _intact(final, kind):
        manifests.write(manifests.of_checkpoint(final), {"files": files})
    volume.settle(scratch, final)
    progress("inspect", 100, role)
    return Fetched(digest, revision or digest[:12], size, facts)


def _seen(folder: Path, revision: str, kind: ArtifactKind) -> Fetched:
    size = volume.size(folder, kind)
    return Fetched(folder.name, revision or folder.name[:12], size, inspect(folder, kind))


def _directory(mount: Path, path: str, role: str, kind: ArtifactKind) -> Path:
    """The checkpoint's directory on the claim, which it may not leave."""
    root = mount.resolve()
    folder = (root / path.strip("/")).resolve()
    if not folder.is_relative_to(root):
        raise JobError(
            FetchReason.SOURCE_NOT_FOUND,
            f"pvc.path of the {role} is {path!r} and leads out of the claim: name a directory "
            "in it",
        )
    if not folder.is_dir():
        raise JobError(
            FetchReason.SOURCE_NOT_FOUND,
            f"pvc.path of the {role} is {path!r}, which is no directory on the claim: correct it, "
            "or put the checkpoint there",
        )
    for file in volume.files(folder, kind):
        if not file.resolve().is_relative_to(root):
            raise JobError(
                FetchReason.SOURCE_NOT_FOUND,
                f"{file.name} in pvc.path {path!r} of the {role} links out of the claim: copy the "
                "file itself there",
            )
    return folder


def _indexed(index: Path, checkpoints: Path, kind: ArtifactKind) -> Path | None:
    """The checkpoint an earlier Job made of the same commit, if it is still there."""
    if not index.is_file():
        return None
    folder = checkpoints / str(json.loads(index.read_text(encoding="utf-8"))["digest"])
    return folder if _intact(folder, kind) else None


def _intact(folder: Path, kind: ArtifactKind) -> bool:
    """Whether a checkpoint is on the volume as it arrived; a damaged one is removed."""
    if not folder.is_dir():
        return False
    try:
        manifests.checkpoint(folder, kind, kind, content=False)
    except DamagedError as error:
        print(f"{folder.name} is damaged ({error}): it is fetched again", flush=True)
        volume.discard(folder)
        return False
    return True


def _write(path: Path, text: str) -> None:
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    scratch.write_text(text, encoding="utf-8")
    scratch.rename(path)


if __name__ == "__main__":
    sys.exit(main())
