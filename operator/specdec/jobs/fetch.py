"""Copy checkpoints to the volume: `python -m specdec.jobs.fetch --plan JSON`.

The operator's fetch Job runs this program. Each checkpoint is stored in `checkpoints/<digest>`, by
the digest of its content, so equal checkpoints from different sources are stored once. Files are
collected in a hidden directory, which the next Job resumes after a failure. The directory gets its
final name only when it is complete and inspected.
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

_MAX_ENGINES_REPORTED = 60
_PUBLIC = Networks()


@dataclass(frozen=True)
class Fetched:
    """One checkpoint on the volume."""

    digest: str
    revision: str
    bytes: int
    facts: dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 if all checkpoints are on the volume."""
    parser = argparse.ArgumentParser(description="Copy checkpoints to the volume")
    parser.add_argument("--plan", required=True, help="sources by role, as JSON")
    parser.add_argument("--volume", type=Path, default=Path(names.VOLUME))
    parser.add_argument("--sources", type=Path, default=Path("/sources"))
    parser.add_argument(
        "--allow", action="append", default=[], help="additional allowed network (CIDR)"
    )
    options = parser.parse_args(arguments)
    plan, networks = json.loads(options.plan), Networks.parse(options.allow)
    return result.run(
        lambda: fetch(plan, options.volume, options.sources, networks), FetchReason.FETCH_FAILED
    )


def fetch(
    plan: Mapping[str, Any], root: Path, mounts: Path, networks: Networks = _PUBLIC
) -> dict[str, Any]:
    """Fetch and inspect every source of the plan; the operator judges compatibility.

    Args:
        plan: sources by role.
        root: of the volume.
        mounts: directory with a mounted claim per role, for sources of kind `pvc`.
        networks: addresses that sources may use in addition to public ones.

    Raises:
        JobError: a source is not available, or is no checkpoint that this release can build.
    """
    checkpoints = root / Path(names.CHECKPOINTS).name
    checkpoints.mkdir(parents=True, exist_ok=True)
    without_weights = plan.get("withoutWeights", ())
    models = {
        role: _model(
            role, ArtifactKind.of(role, without_weights), source, checkpoints, mounts, networks
        )
        for role, source in plan["models"].items()
    }
    return {
        "models": {role: vars(model) for role, model in models.items()},
        "engines": engines(root),
    }


def engines(root: Path) -> list[str]:
    """The first 16 hex digits of the keys of the newest complete engines, newest first."""
    folder = root / Path(names.ENGINES).name
    complete = [
        path.parent
        for path in folder.glob("*/manifest.json")
        if not path.parent.name.startswith(".")
    ]
    newest = sorted(complete, key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.name[:16] for path in newest[:_MAX_ENGINES_REPORTED]]


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
    with EgressProxy(networks) as proxy:
        try:
            return _from_remote(role, kind, source, checkpoints, proxy)
        except JobError as error:
            raise proxy.root_cause(error, f"the source of the {role}") from error


def _from_remote(
    role: str, kind: ArtifactKind, source: Mapping[str, Any], checkpoints: Path, proxy: EgressProxy
) -> Fetched:
    with sources.remote(role, kind, source, proxy) as remote:
        listing = _listing(remote, role)
        # The kind selects the files, so each kind of a source has its own directory.
        suffix = [] if kind is ArtifactKind.CHECKPOINT else [kind.name]
        key = names.digest([*listing.identity, *suffix])[:32]
        with volume.locked(checkpoints / f".lock-{key}"):
            index = checkpoints / f".index-{key}.json"
            existing = _indexed(index, checkpoints, kind)
            if existing is not None:
                progress("download", 100, f"{role} is already on the volume")
                return _existing(existing, listing.revision, kind)
            scratch = checkpoints / f".download-{key}"
            _download(remote, listing, scratch)
            fetched = _complete(scratch, checkpoints, listing.revision, role, kind)
            _write(index, json.dumps({"digest": fetched.digest}))
            return fetched


def _listing(remote: Remote, role: str) -> Listing:
    """The listing of a source; the server is untrusted, so its response may have any type."""
    try:
        return remote.resolve()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        cause = "its response does not follow the protocol"
        raise unreachable(f"the source of the {role}", cause) from error


def _download(remote: Remote, listing: Listing, scratch: Path) -> None:
    scratch.mkdir(exist_ok=True)
    # Partial files of an earlier release, which cannot be resumed.
    shutil.rmtree(scratch / ".cache", ignore_errors=True)
    arrived = sum(p.stat().st_size for p in scratch.rglob("*") if p.is_file())
    volume.require_space(scratch, listing.bytes - arrived)
    remote.download(listing, scratch)


def _from_claim(
    role: str, kind: ArtifactKind, source: Mapping[str, Any], checkpoints: Path, mount: Path
) -> Fetched:
    folder = _directory(mount, source["path"], role, kind)
    progress("digest", 0, role)
    digest = volume.digest(folder, kind)
    final = checkpoints / digest
    if _keep_if_intact(final, kind):
        progress("copy", 100, f"{role} is already on the volume")
        return _existing(final, digest[:12], kind)
    # Inspect before the copy, so that a wrong directory takes no space on the volume.
    inspect(folder, kind)
    with volume.locked(checkpoints / f".lock-{digest[:32]}"):
        scratch = checkpoints / f".copy-{digest[:32]}"
        shutil.rmtree(scratch, ignore_errors=True)
        total = volume.size(folder, kind)
        volume.require_space(checkpoints, total)
        scratch.mkdir()
        try:
            _copy(folder, scratch, total, role, kind)
            return _complete(scratch, checkpoints, digest[:12], role, kind)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _copy(folder: Path, scratch: Path, total: int, role: str, kind: ArtifactKind) -> None:
    copied, logged_tenth = 0, -1
    for count in volume.copy(folder, scratch, kind):
        copied += count
        percent = 100 * copied // max(total, 1)
        if percent // 10 > logged_tenth:
            logged_tenth = percent // 10
            progress("copy", percent, role)


def _complete(
    scratch: Path, checkpoints: Path, revision: str, role: str, kind: ArtifactKind
) -> Fetched:
    """Inspect a complete directory, write its list of files and give it its final name."""
    progress("inspect", 0, role)
    try:
        facts = inspect(scratch, kind)
    except JobError:
        # Remove a corrupt checkpoint, so that the next Job fetches it from the start.
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    files, size = manifests.describe(volume.files(scratch, kind)), volume.size(scratch, kind)
    digest = manifests.digest(files)
    final = checkpoints / digest
    if not _keep_if_intact(final, kind):
        manifests.write(manifests.checkpoint_manifest(final), {"files": files})
    volume.settle(scratch, final)
    progress("inspect", 100, role)
    return Fetched(digest, revision or digest[:12], size, facts)


def _existing(folder: Path, revision: str, kind: ArtifactKind) -> Fetched:
    size = volume.size(folder, kind)
    return Fetched(folder.name, revision or folder.name[:12], size, inspect(folder, kind))


def _directory(mount: Path, path: str, role: str, kind: ArtifactKind) -> Path:
    """The checkpoint's directory on a mounted claim; a path outside the claim is an error."""
    root = mount.resolve()
    folder = (root / path.strip("/")).resolve()
    if not folder.is_relative_to(root):
        raise JobError(
            FetchReason.SOURCE_NOT_FOUND,
            f"pvc.path of the {role} is {path!r}, which is outside the claim: name a directory "
            "inside it",
        )
    if not folder.is_dir():
        raise JobError(
            FetchReason.SOURCE_NOT_FOUND,
            f"pvc.path of the {role} is {path!r}, which is no directory on the claim: correct it, "
            "or copy the checkpoint there",
        )
    for file in volume.files(folder, kind):
        if not file.resolve().is_relative_to(root):
            raise JobError(
                FetchReason.SOURCE_NOT_FOUND,
                f"{file.name} in pvc.path {path!r} of the {role} is a link to a file outside the "
                "claim: copy the file itself there",
            )
    return folder


def _indexed(index: Path, checkpoints: Path, kind: ArtifactKind) -> Path | None:
    """The checkpoint that an earlier Job stored for the same listing, if it is still intact."""
    if not index.is_file():
        return None
    folder = checkpoints / str(json.loads(index.read_text(encoding="utf-8"))["digest"])
    return folder if _keep_if_intact(folder, kind) else None


def _keep_if_intact(folder: Path, kind: ArtifactKind) -> bool:
    """Whether a checkpoint is on the volume and undamaged; remove a damaged one."""
    if not folder.is_dir():
        return False
    try:
        manifests.checkpoint(folder, kind, kind, content=False)
    except DamagedError as error:
        print(f"{folder.name} is damaged ({error}) and will be fetched again", flush=True)
        volume.discard(folder)
        return False
    return True


def _write(path: Path, text: str) -> None:
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    scratch.write_text(text, encoding="utf-8")
    scratch.rename(path)


if __name__ == "__main__":
    sys.exit(main())
