"""Fetch a source that lies on a claim: link to it on the resource's own volume, else copy it."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from specdec.api.checkpoint_facts import CheckpointFacts, Fetched
from specdec.api.reasons import FetchReason
from specdec.jobs import inspection, volume
from specdec.jobs.artifact import existing, keep_if_intact, settled
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.result import JobError, progress


@dataclass(frozen=True)
class ClaimArtifact:
    """A directory on a mounted claim.

    Attributes:
        folder: the directory; in a claim of its own it is mounted read-only.
        in_place: whether it lies on the volume of `checkpoints`. Its files are then linked, so
            that they take no further space.
    """

    role: str
    kind: ArtifactKind
    folder: Path
    checkpoints: Path
    in_place: bool

    def configuration(self) -> CheckpointFacts:
        """The facts of the files that lie on the claim."""
        return inspection.configuration(self.folder, self.kind)

    def files(self) -> Path:
        """The directory on the claim."""
        return self.folder

    def space(self) -> tuple[str, int]:
        """The bytes of a copy; 0 for links, and if the volume has the same files."""
        if self.in_place or keep_if_intact(self._final, self.kind):
            return self._digest, 0
        return self._digest, volume.size(self.folder, self.kind)

    def complete(self) -> Fetched:
        """Inspect the directory, and link or copy its files unless the volume has them."""
        revision = self._digest[:12]
        if keep_if_intact(self._final, self.kind):
            progress("copy", 100, f"{self.role} is already on the volume")
            return existing(self._final, revision, self.kind)
        # Inspect before the copy, so that a wrong directory takes no space on the volume.
        facts = inspection.inspect(self.folder, self.kind)
        with volume.locked(self.checkpoints / f".lock-{self._digest[:32]}"):
            scratch = self.checkpoints / f".copy-{self._digest[:32]}"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            try:
                if not (self.in_place and self._linked(scratch)):
                    self._copy(scratch)
                return settled(scratch, self.checkpoints, revision, facts, self.kind)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

    @cached_property
    def _digest(self) -> str:
        progress("digest", 0, self.role)
        return volume.digest(self.folder, self.kind)

    @property
    def _final(self) -> Path:
        return self.checkpoints / self._digest

    def _linked(self, scratch: Path) -> bool:
        """Link to every file; False if the file system has no links.

        The links are relative: every pod mounts the volume, in a directory of its own choice.
        """
        try:
            for path in volume.files(self.folder, self.kind):
                target = os.path.relpath(path.resolve(), scratch.resolve())
                (scratch / path.name).symlink_to(target)
        except OSError as error:
            print(f"copying the {self.role}, because links failed ({error.strerror})", flush=True)
            for link in scratch.iterdir():
                link.unlink()
            return False
        progress("link", 100, self.role)
        return True

    def _copy(self, scratch: Path) -> None:
        total = volume.size(self.folder, self.kind)
        print(f"the copy of the {self.role} takes {total / 1e6:.0f} MB", flush=True)
        copied, logged_tenth = 0, -1
        for count in volume.copy(self.folder, scratch, self.kind):
            copied += count
            percent = 100 * copied // max(total, 1)
            if percent // 10 > logged_tenth:
                logged_tenth = percent // 10
                progress("copy", percent, self.role)


def opened(
    role: str,
    kind: ArtifactKind,
    source: Mapping[str, Any],
    checkpoints: Path,
    mount: Path,
    *,
    in_place: bool,
) -> ClaimArtifact:
    """Open the directory that a source names below the mount point of its claim.

    Raises:
        JobError: SourceNotFound: there is no such directory inside the claim.
    """
    folder = _directory(mount, source["path"], role, kind)
    return ClaimArtifact(role, kind, folder, checkpoints, in_place)


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
