"""Checkpoints from OCI registries: an artifact's files, or the files of an image's layers.

A layer with a title is a file of that name (ORAS, model packages). Layers of a plain image are
archives; of those the files at the top or in `models/` count.
"""

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.api.reasons import FetchReason
from specdec.jobs import archive, download, http_source
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.download import Listing, RemoteFile
from specdec.jobs.http_source import HttpSource
from specdec.jobs.registry import Reference, RegistryAuth, login
from specdec.jobs.result import JobError

_TITLE = "org.opencontainers.image.title"
_UNPACK = "io.deis.oras.content.unpack"
_BLOBS = ".blobs"
_MANIFEST = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_INDEX = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)


@dataclass(frozen=True)
class Artifact:
    """What a reference names in a registry."""

    web: HttpSource
    reference: Reference
    role: str
    kind: ArtifactKind

    def resolve(self) -> Listing:
        """Read the manifest; of an index that for linux/amd64, else the first."""
        digest, manifest = self._manifest(self.reference.name)
        if "manifests" in manifest:
            digest, manifest = self._manifest(_chosen(manifest["manifests"], self.web.where))
        layers = manifest.get("layers")
        files = [f for layer in layers or [] if (f := self._file(layer)) is not None]
        if not files:
            raise download.nothing(self.web.where, "file that counts and no archive")
        if len({file.name for file in files}) < len(files):
            raise JobError(
                FetchReason.SOURCE_NOT_FOUND,
                f"{self.web.where} has two layers of one name: give every file a name of its own",
            )
        identity = [self.reference.base, digest]
        return Listing(identity, digest, sum(f.size for f in files), tuple(files))

    def download(self, listing: Listing, folder: Path) -> None:
        """Download the layers and unpack those that are archives."""
        archives = [f for f in listing.files if f.name.startswith(f"{_BLOBS}/")]
        blobs = folder / _BLOBS
        blobs.mkdir(exist_ok=True)
        plain = [f for f in listing.files if f not in archives]
        packed = [RemoteFile(f.sha256, f.size, f.key, f.sha256) for f in archives]
        with download.reporting(folder, listing.bytes, self.role):
            download.transfer(plain, folder, self._read, self.web.where)
            download.transfer(packed, blobs, self._read, self.web.where)
        for file in packed:
            archive.unpack(blobs / file.name, folder, self.kind, self.web.where)
        shutil.rmtree(blobs)

    def _read(self, file: RemoteFile, offset: int) -> AbstractContextManager[Iterator[bytes]]:
        return self.web.read(f"{self.reference.base}/blobs/{file.key}", offset)

    def _manifest(self, name: str) -> tuple[str, dict[str, Any]]:
        """Digest and content of a manifest by tag or digest."""
        accept = {"Accept": ", ".join((*_MANIFEST, *_INDEX))}
        answer = self.web.ask(f"{self.reference.base}/manifests/{name}", accept)
        digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
        if name.startswith("sha256:") and name != digest:
            raise download.unreachable(self.web.where, "the manifest is not what its digest says")
        try:
            manifest = answer.json()
        except ValueError as error:
            raise download.unreachable(self.web.where, "the manifest is not JSON") from error
        if not isinstance(manifest, dict):
            raise download.unreachable(self.web.where, "the manifest is no JSON object")
        return digest, manifest

    def _file(self, layer: Mapping[str, Any]) -> RemoteFile | None:
        """A layer as a file, a packed one under `.blobs/`; None when it does not count."""
        digest, size = str(layer.get("digest", "")), layer.get("size")
        algorithm, _, digits = digest.partition(":")
        shaped = algorithm == "sha256" and len(digits) == 64 and digits.isalnum()
        if not shaped or not isinstance(size, int) or size < 0:
            raise download.unreachable(self.web.where, "the manifest has a layer without a digest")
        notes = layer.get("annotations") or {}
        title = str(notes.get(_TITLE, ""))
        if title and str(notes.get(_UNPACK)) != "true":
            # A title may carry folders; what lies in one does not count, as in any source.
            if not self.kind.includes(title):
                return None
            return RemoteFile(title, size, digest, digits)
        if "tar" not in str(layer.get("mediaType", "")):
            return None
        return RemoteFile(f"{_BLOBS}/{digits}", size, digest, digits)


def _chosen(manifests: list[Mapping[str, Any]], where: str) -> str:
    for entry in manifests:
        platform = entry.get("platform") or {}
        if (platform.get("os"), platform.get("architecture")) == ("linux", "amd64"):
            return str(entry["digest"])
    if not manifests:
        raise download.nothing(where, "manifest")
    return str(manifests[0]["digest"])


@contextmanager
def artifact(
    role: str, kind: ArtifactKind, source: Mapping[str, Any], config: str, proxy: str
) -> Iterator[Artifact]:
    """The artifact of `registry/repository:tag` or `@sha256:...`.

    `config` is a docker configuration in JSON with the registry's login, or empty.

    Raises:
        JobError: SourceNotFound for a reference that is none, AuthFailed for a bad configuration.
    """
    reference = Reference.parse(str(source["reference"]), role)
    words = f"the Secret of the {role}'s oci.pullSecretRef"
    auth = RegistryAuth(login(config, reference.registry, words), reference.scheme)
    where = f"{source['reference']} of the {role}"
    with http_source.client(proxy, auth) as client:
        yield Artifact(HttpSource(client, where, words), reference, role, kind)
