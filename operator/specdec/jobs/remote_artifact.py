"""Fetch a remote source: its small files, so that it can be judged, and later the rest.

Files are collected in a hidden directory, which the next Job resumes after a failure.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specdec.api import names
from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts, Fetched
from specdec.api.networks import Networks
from specdec.jobs import inspection, sources, volume
from specdec.jobs.artifact import existing, keep_if_intact, settled
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.download import Listing, Remote, RemoteFile, unreachable
from specdec.jobs.egress_proxy import EgressProxy
from specdec.jobs.result import JobError, progress

# Larger configuration files are refused, and larger archives are left for later.
_SMALL_BYTES = 64 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class RemoteArtifact:
    """A source that is listed, and that all of its requests reach through `proxy`."""

    role: str
    kind: ArtifactKind
    proxy: EgressProxy
    remote: Remote
    listing: Listing
    checkpoints: Path

    def configuration(self) -> CheckpointFacts:
        """Download the small files and read their facts."""
        with self._locked(), self._root_cause():
            stored = self._indexed()
            if stored is not None:
                return inspection.configuration(stored, self.kind)
            small = tuple(filter(_is_small, self.listing.files))
            total = sum(file.size for file in small)
            self._download(replace(self.listing, files=small, bytes=total))
            if not any(map(_is_archive, self.listing.files)):
                with self._removed_if_refused():
                    return inspection.configuration(self._scratch, self.kind)
            try:
                return inspection.configuration(self._scratch, self.kind)
            except JobError:
                # Another archive may have the file that is missing.
                return NO_FACTS

    def files(self) -> Path:
        """The stored checkpoint, else the directory of what is downloaded."""
        return self._indexed() or self._scratch

    def space(self) -> tuple[str, int]:
        """The bytes that are not downloaded yet."""
        if self._index.is_file():
            return self._key, 0
        arrived = sum(p.stat().st_size for p in self._scratch.rglob("*") if p.is_file())
        return self._key, max(self.listing.bytes - arrived, 0)

    def complete(self) -> Fetched:
        """Download the other files, unless an earlier Job stored the same listing."""
        with self._locked(), self._root_cause():
            folder = self._indexed()
            if folder is not None:
                progress("download", 100, f"{self.role} is already on the volume")
                return existing(folder, self.listing.revision, self.kind)
            self._download(self.listing)
            progress("inspect", 0, self.role)
            with self._removed_if_refused():
                facts = inspection.inspect(self._scratch, self.kind)
            fetched = settled(
                self._scratch, self.checkpoints, self.listing.revision, facts, self.kind
            )
            progress("inspect", 100, self.role)
            _write(self._index, json.dumps({"digest": fetched.digest}))
            return fetched

    @property
    def _key(self) -> str:
        # The kind selects the files, so each kind of a source has its own directory.
        suffix = [] if self.kind is ArtifactKind.CHECKPOINT else [self.kind.name]
        return names.digest([*self.listing.identity, *suffix])[:32]

    @property
    def _scratch(self) -> Path:
        return self.checkpoints / f".download-{self._key}"

    @property
    def _index(self) -> Path:
        return self.checkpoints / f".index-{self._key}.json"

    def _indexed(self) -> Path | None:
        """The checkpoint that an earlier Job stored for the same listing, if still intact."""
        if not self._index.is_file():
            return None
        digest = indexed_digest(self._index)
        if digest is not None and keep_if_intact(self.checkpoints / digest, self.kind):
            return self.checkpoints / digest
        self._index.unlink()
        return None

    def _download(self, listing: Listing) -> None:
        self._scratch.mkdir(exist_ok=True)
        # Partial files of an earlier release, which cannot be resumed.
        shutil.rmtree(self._scratch / ".cache", ignore_errors=True)
        self.remote.download(listing, self._scratch)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with volume.locked(self.checkpoints / f".lock-{self._key}"):
            yield

    @contextmanager
    def _root_cause(self) -> Iterator[None]:
        with _named(self.proxy, self.role):
            yield

    @contextmanager
    def _removed_if_refused(self) -> Iterator[None]:
        """Remove a corrupt checkpoint, so that the next Job fetches it from the start."""
        try:
            yield
        except JobError:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise


@contextmanager
def opened(
    role: str,
    kind: ArtifactKind,
    source: Mapping[str, Any],
    checkpoints: Path,
    networks: Networks,
) -> Iterator[RemoteArtifact]:
    """Open and list a source.

    Raises:
        JobError: its settings or secret are invalid, or it cannot be listed.
    """
    with ExitStack() as stack:
        proxy = stack.enter_context(EgressProxy(networks))
        with _named(proxy, role):
            remote = stack.enter_context(sources.remote(role, kind, source, proxy))
            listing = _listing(remote, role)
        yield RemoteArtifact(role, kind, proxy, remote, listing, checkpoints)


def indexed_digest(index: Path) -> str | None:
    """The digest that an earlier Job wrote for a listing; None if the file is damaged."""
    try:
        digest = json.loads(index.read_bytes())["digest"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None


def _is_archive(file: RemoteFile) -> bool:
    """Whether a file is a layer that is unpacked: names of other files have no directory."""
    return "/" in file.name


def _is_small(file: RemoteFile) -> bool:
    """Whether a file is configuration or tokenizer, or an archive that may contain them."""
    needed = _is_archive(file) or ArtifactKind.WITHOUT_WEIGHTS.includes(file.name)
    return needed and file.size <= _SMALL_BYTES


def _listing(remote: Remote, role: str) -> Listing:
    """The listing of a source; the server is untrusted, so its response may have any type."""
    try:
        return remote.resolve()
    except (
        *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError),
    ) as error:
        cause = "its response does not follow the protocol"
        raise unreachable(f"the source of the {role}", cause) from error


@contextmanager
def _named(proxy: EgressProxy, role: str) -> Iterator[None]:
    """Raise what the proxy refused in place of the error that followed from it."""
    try:
        yield
    except JobError as error:
        raise proxy.root_cause(error, f"the source of the {role}") from error


def _write(path: Path, text: str) -> None:
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    scratch.write_text(text, encoding="utf-8")
    scratch.rename(path)
