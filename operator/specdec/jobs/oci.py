"""Fetch a checkpoint from an OCI registry, stored as an artifact or as a container image.

`sources` calls `open_source`; the `Artifact` it yields implements `download.Remote`. A layer with
a title annotation is a file of that name (ORAS, model packages). Other layers are archives, whose
files at the root or in `models/` are unpacked.
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
from specdec.jobs.registry import Reference, RegistryAuth, registry_credentials
from specdec.jobs.result import JobError
from specdec.jobs.source_request import SourceRequest

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
    """The artifact or image that a reference names in a registry."""

    web: HttpSource
    reference: Reference
    role: str
    kind: ArtifactKind

    def resolve(self) -> Listing:
        """Read the manifest; an index selects the manifest for linux/amd64, or else the first."""
        digest, manifest = self._manifest(self.reference.name)
        if "manifests" in manifest:
            digest, manifest = self._manifest(_chosen(manifest["manifests"], self.web.where))
        layers = manifest.get("layers")
        files = [f for layer in layers or [] if (f := self._file(layer)) is not None]
        if not files:
            raise download.no_matching_files(self.web.where, "matching file and no archive")
        if len({file.name for file in files}) < len(files):
            raise JobError(
                FetchReason.SOURCE_NOT_FOUND,
                f"{self.web.where} has two layers with the same title: give each file its own",
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
        """The digest and content of a manifest, by tag or digest."""
        accept = {"Accept": ", ".join((*_MANIFEST, *_INDEX))}
        response = self.web.get(f"{self.reference.base}/manifests/{name}", accept)
        digest = f"sha256:{hashlib.sha256(response.content).hexdigest()}"
        if name.startswith("sha256:") and name != digest:
            raise download.unreachable(self.web.where, "the manifest does not match its digest")
        try:
            manifest = response.json()
        except ValueError as error:
            raise download.unreachable(self.web.where, "the manifest is not JSON") from error
        if not isinstance(manifest, dict):
            raise download.unreachable(self.web.where, "the manifest is no JSON object")
        return digest, manifest

    def _file(self, layer: Mapping[str, Any]) -> RemoteFile | None:
        """The file of a layer, under `.blobs/` for an archive; None if the layer is not needed."""
        digest, size = str(layer.get("digest", "")), layer.get("size")
        algorithm, _, digits = digest.partition(":")
        is_sha256 = algorithm == "sha256" and len(digits) == 64 and digits.isalnum()
        if not is_sha256 or not isinstance(size, int) or size < 0:
            raise download.unreachable(self.web.where, "the manifest has a layer without a digest")
        annotations = layer.get("annotations") or {}
        title = str(annotations.get(_TITLE, ""))
        if title and str(annotations.get(_UNPACK)) != "true":
            # A title may contain directories; like in every source, only root files are needed.
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
        raise download.no_matching_files(where, "manifest")
    return str(manifests[0]["digest"])


@contextmanager
def open_source(request: SourceRequest) -> Iterator[Artifact]:
    """Open the artifact that `registry/repository:tag` or `@sha256:...` names.

    The secret is a Docker configuration in JSON with the registry's credentials, or empty.

    Raises:
        JobError: SourceNotFound for an invalid reference, AuthFailed for an invalid configuration.
    """
    role = request.role
    reference = Reference.parse(str(request.settings["reference"]), role)
    secret = f"the Secret of the {role}'s oci.pullSecretRef"
    config = request.secret("OCI_CONFIG")
    credentials = registry_credentials(config, reference.registry, secret)
    auth = RegistryAuth(credentials, reference.scheme)
    where = f"{request.settings['reference']} of the {role}"
    with http_source.client(request.proxy.url, auth) as client:
        yield Artifact(HttpSource(client, where, secret), reference, role, request.kind)
