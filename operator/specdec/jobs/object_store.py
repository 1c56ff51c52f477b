"""Checkpoints from object stores: S3 and what speaks its protocol, Google Cloud Storage."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore import exceptions
from obstore.store import GCSStore, S3Store

from specdec.api.reasons import FetchReason
from specdec.jobs import download
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.download import BrokenError, Listing, RemoteFile
from specdec.jobs.result import JobError

_BLOCK = 4 << 20
# Of a listing the library tells the status in its text only.
_STATUS = re.compile(r"status code: (\d{3})")
# The proxies of the guard: for files, and for listings.
Ways = tuple[str, str]
_RETRY: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=60)}


@dataclass(frozen=True)
class Bucket:
    """A prefix of a bucket; `secret` says in messages where its credentials are given.

    `index` is the same store asked for listings, which the library reads into memory.
    """

    store: Any
    index: Any
    uri: str
    prefix: str
    role: str
    secret: str
    kind: ArtifactKind

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"{self.uri} of the {self.role}"

    def resolve(self) -> Listing:
        """List the prefix itself, not what lies deeper."""
        with self._explained():
            found = obstore.list_with_delimiter(self.index, self.prefix or None)["objects"]
        files = [
            RemoteFile(name, int(item["size"]), str(item["path"]), "")
            for item in found
            if self.kind.includes(name := str(item["path"]).rpartition("/")[2])
        ]
        if not files:
            raise download.nothing(self.where, f"file of a {_what(self.kind)}")
        tags = {str(item["path"]): str(item.get("e_tag") or "") for item in found}
        files.sort(key=lambda file: file.name)
        identity = [self.uri, [[f.name, f.size, tags[f.key]] for f in files]]
        total = sum(f.size for f in files)
        return Listing(identity, "", total, tuple(files))

    def download(self, listing: Listing, folder: Path) -> None:
        """Download by byte ranges."""
        tags = {name: tag for name, _, tag in listing.identity[1]}

        @contextmanager
        def read(file: RemoteFile, offset: int) -> Iterator[Iterator[bytes]]:
            options: Any = {"range": {"offset": offset}, "if_match": tags[file.name] or None}
            with self._explained():
                answer = obstore.get(self.store, file.key, options=options)
                yield self._blocks(answer)

        with download.reporting(folder, listing.bytes, self.role):
            download.transfer(listing.files, folder, read, self.where)

    def _blocks(self, answer: Any) -> Iterator[bytes]:
        try:
            for block in answer.stream(min_chunk_size=_BLOCK):
                yield bytes(block)
        except exceptions.GenericError as error:
            raise BrokenError(_short(error)) from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say in one sentence what the library says in classes and in text."""
        try:
            yield
        except exceptions.PreconditionError as error:
            raise download.unreachable(self.where, "a file changed meanwhile") from error
        except exceptions.BaseError as error:
            raise self._problem(error) from error

    def _problem(self, error: exceptions.BaseError) -> JobError:
        status = _STATUS.search(str(error))
        refused = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        missing = (exceptions.NotFoundError, exceptions.InvalidPathError)
        if isinstance(error, refused) or (status and status[1] in ("401", "403")):
            return JobError(
                FetchReason.AUTH_FAILED,
                f"the store refused {self.where}: give {self.secret} credentials that may list "
                "and read it",
            )
        if isinstance(error, missing) or (status and status[1] == "404"):
            return JobError(
                FetchReason.SOURCE_NOT_FOUND,
                f"{self.where} does not exist: correct bucket and prefix",
            )
        if "redirect without LOCATION" in str(error):
            return JobError(
                FetchReason.SOURCE_NOT_FOUND,
                f"{self.where} lies in another region: set s3.region to the bucket's",
            )
        return download.unreachable(self.where, _short(error))


def s3(
    role: str,
    kind: ArtifactKind,
    source: Mapping[str, Any],
    secrets: Mapping[str, str],
    ways: Ways,
) -> Bucket:
    """A prefix of an S3 bucket; without an access key it is read anonymously."""
    bucket, prefix = _split(source["uri"])
    endpoint = source.get("endpoint", "")
    config: dict[str, Any] = {"region": source.get("region", "us-east-1")}
    if endpoint:
        config["endpoint"] = endpoint
    if secrets.get("access"):
        config["access_key_id"] = secrets["access"]
        config["secret_access_key"] = secrets.get("secret", "")
        if secrets.get("session"):
            config["session_token"] = secrets["session"]
    else:
        config["skip_signature"] = True
    store, index = (
        S3Store(bucket, client_options=_client(endpoint, way), retry_config=_RETRY, **config)
        for way in ways
    )
    words = f"the Secret of the {role}'s s3.credentialsSecretRef"
    return Bucket(store, index, source["uri"], prefix, role, words, kind)


def gcs(role: str, kind: ArtifactKind, source: Mapping[str, Any], key: str, ways: Ways) -> Bucket:
    """A prefix of a Google Cloud Storage bucket; without a key it is read anonymously.

    Raises:
        JobError: AuthFailed when the key is no service account's.
    """
    bucket, prefix = _split(source["uri"])
    endpoint = source.get("endpoint", "")
    config: dict[str, Any] = {"service_account_key": key} if key else {"skip_signature": True}
    if endpoint:
        config["base_url"] = endpoint
    words = f"the Secret of the {role}'s gcs.credentialsSecretRef"
    try:
        store, index = (
            GCSStore(bucket, client_options=_client(endpoint, way), retry_config=_RETRY, **config)
            for way in ways
        )
    except exceptions.BaseError:
        # The library may quote what it could not read, which is the key: its words stay here.
        raise JobError(
            FetchReason.AUTH_FAILED, f"{words} holds no service account key in JSON: put one there"
        ) from None
    return Bucket(store, index, source["uri"], prefix, role, words, kind)


def _split(uri: str) -> tuple[str, str]:
    """Bucket and prefix of `scheme://bucket/prefix`."""
    bucket, _, prefix = uri.partition("://")[2].partition("/")
    return bucket, prefix.strip("/")


def _client(endpoint: str, proxy: str) -> Any:
    return {
        "allow_http": endpoint.startswith("http://"),
        "timeout": timedelta(seconds=300),
        "proxy_url": proxy,
    }


def _what(kind: ArtifactKind) -> str:
    return {ArtifactKind.HEADS: "heads checkpoint", ArtifactKind.ENGINE: "engine"}.get(
        kind, "checkpoint"
    )


def _short(error: Exception) -> str:
    """Without the library's text, which quotes the answer's body."""
    status = _STATUS.search(str(error))
    return f"answer {status[1]}" if status else "the connection failed"
