"""Fetch artifacts from a bucket of an object store.

`s3` and `gcs` create a `Bucket`, which implements `download.Remote`. All requests go through the
egress proxy, and no message quotes a store's response.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore import exceptions

from specdec.api.reasons import FetchReason
from specdec.jobs import download
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.download import BrokenError, Listing, RemoteFile
from specdec.jobs.result import JobError

_BLOCK = 4 << 20
# The library reports the HTTP status of a failed listing in its error text only.
_STATUS = re.compile(r"status code: (\d{3})")
_RETRY: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=60)}


@dataclass(frozen=True)
class Bucket:
    """A prefix of a bucket.

    Attributes:
        store: the library's client for files.
        index: a second client for listings. The library reads a listing into memory, so this
            client uses the proxy address that limits the size.
        uri: `scheme://bucket/prefix`, for messages.
        prefix: of the object keys, without a slash at either end.
        role: that the files are for.
        secret: the Secret with the credentials, for messages.
        kind: selects the files.
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
        """The source, as messages name it."""
        return f"{self.uri} of the {self.role}"

    def resolve(self) -> Listing:
        """List the objects directly under the prefix."""
        with self._job_errors():
            objects = obstore.list_with_delimiter(self.index, self.prefix or None)["objects"]
        files = [
            RemoteFile(name, int(item["size"]), str(item["path"]), "")
            for item in objects
            if self.kind.includes(name := str(item["path"]).rpartition("/")[2])
        ]
        if not files:
            raise download.no_matching_files(self.where, f"file of a {_label(self.kind)}")
        tags = {str(item["path"]): str(item.get("e_tag") or "") for item in objects}
        files.sort(key=lambda file: file.name)
        identity = [self.uri, [[f.name, f.size, tags[f.key]] for f in files]]
        total = sum(f.size for f in files)
        return Listing(identity, "", total, tuple(files))

    def download(self, listing: Listing, folder: Path) -> None:
        """Download the files by byte ranges, each only while its ETag is unchanged."""
        tags = {name: tag for name, _, tag in listing.identity[1]}

        @contextmanager
        def read(file: RemoteFile, offset: int) -> Iterator[Iterator[bytes]]:
            options: Any = {"range": {"offset": offset}, "if_match": tags[file.name] or None}
            with self._job_errors():
                response = obstore.get(self.store, file.key, options=options)
                yield self._blocks(response)

        with download.reporting(folder, listing.bytes, self.role):
            download.transfer(listing.files, folder, read, self.where)

    def _blocks(self, response: Any) -> Iterator[bytes]:
        try:
            for block in response.stream(min_chunk_size=_BLOCK):
                yield bytes(block)
        except exceptions.GenericError as error:
            raise BrokenError(_cause(error)) from error

    @contextmanager
    def _job_errors(self) -> Iterator[None]:
        """Convert the library's errors to `JobError`."""
        try:
            yield
        except exceptions.PreconditionError as error:
            raise download.unreachable(self.where, "a file changed during the download") from error
        except exceptions.BaseError as error:
            raise self._job_error(error) from error

    def _job_error(self, error: exceptions.BaseError) -> JobError:
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
                f"{self.where} is in another region: set s3.region to the bucket's region",
            )
        return download.unreachable(self.where, _cause(error))


def split(uri: str) -> tuple[str, str]:
    """The bucket and the prefix of `scheme://bucket/prefix`."""
    bucket, _, prefix = uri.partition("://")[2].partition("/")
    return bucket, prefix.strip("/")


def store_options(endpoint: str, proxy: str) -> dict[str, Any]:
    """The library's options for a store: the egress proxy, timeout and retries."""
    client = {
        "allow_http": endpoint.startswith("http://"),
        "timeout": timedelta(seconds=300),
        "proxy_url": proxy,
    }
    return {"client_options": client, "retry_config": _RETRY}


def _label(kind: ArtifactKind) -> str:
    return {ArtifactKind.HEADS: "heads checkpoint", ArtifactKind.ENGINE: "engine"}.get(
        kind, "checkpoint"
    )


def _cause(error: Exception) -> str:
    """The cause without the library's text, which quotes the response body."""
    status = _STATUS.search(str(error))
    return f"HTTP status {status[1]}" if status else "the connection failed"
