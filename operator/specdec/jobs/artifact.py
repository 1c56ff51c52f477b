"""One source of a fetch Job while it is fetched: its configuration first, then all of its files.

`fetch` opens every source of a plan before it completes any of them, so that models that do not
fit each other are refused before weights are downloaded. `remote_artifact` and `claim_artifact`
have the two kinds of source.
"""

from pathlib import Path
from typing import Protocol

from specdec.api.checkpoint_facts import REVISION_CHARACTERS, CheckpointFacts, Fetched
from specdec.jobs import inspection, manifests, volume
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.manifests import DamagedError


class Artifact(Protocol):
    """A source of the plan; each method raises JobError with a documented reason."""

    def configuration(self) -> CheckpointFacts:
        """The facts that configuration and tokenizer state; none if those files are not known.

        Of a remote source, only small files are downloaded.
        """

    def files(self) -> Path:
        """The folder that has configuration and tokenizer, once they are read."""

    def space(self) -> tuple[str, int]:
        """The bytes that `complete` adds to the volume, and a name that equal content shares."""

    def complete(self) -> Fetched:
        """Bring all files to the volume, inspect them and give their directory its final name."""


def existing(folder: Path, revision: str, kind: ArtifactKind) -> Fetched:
    """The checkpoint in a directory with a final name."""
    size, facts = volume.size(folder, kind), inspection.inspect(folder, kind)
    return _fetched(folder.name, revision, size, facts)


def keep_if_intact(folder: Path, kind: ArtifactKind) -> bool:
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


def settled(
    scratch: Path, checkpoints: Path, revision: str, facts: CheckpointFacts, kind: ArtifactKind
) -> Fetched:
    """Write the list of a complete directory's files, and give it its final name."""
    files, size = manifests.describe(volume.files(scratch, kind)), volume.size(scratch, kind)
    digest = manifests.digest(files)
    final = checkpoints / digest
    if not keep_if_intact(final, kind):
        manifests.write(manifests.checkpoint_manifest(final), {"files": files})
    volume.settle(scratch, final)
    return _fetched(digest, revision, size, facts)


def _fetched(digest: str, revision: str, size: int, facts: CheckpointFacts) -> Fetched:
    """The result of a source; one without a revision has the first digits of the digest."""
    shown = revision[:REVISION_CHARACTERS] or digest[:12]
    return Fetched(digest=digest, revision=shown, bytes=size, facts=facts)
