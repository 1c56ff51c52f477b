"""Fetch a checkpoint from a Hugging Face hub or a mirror of it.

`sources` calls `open_source`. The `Repository` it returns implements `download.Remote`. `resolve`
turns a revision into a commit and its files, and `download` fetches the files that are missing.
The token is sent to the hub alone, never to a host that a redirect names.
"""

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from huggingface_hub import HfApi, hf_hub_url, set_client_factory
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from typing_extensions import override

from specdec.api.reasons import FetchReason
from specdec.jobs import download, http_source
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.download import Listing, RemoteFile
from specdec.jobs.http_source import HttpSource
from specdec.jobs.result import JobError
from specdec.jobs.source_request import SourceRequest

_PUBLIC = "https://huggingface.co"
_SECONDS = 60.0


class _TokenAuth(httpx.Auth):
    """Sends the token to the hub alone; httpx drops it on a redirect to another host."""

    def __init__(self, token: str) -> None:
        self._header = f"Bearer {token}"

    @override
    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = self._header
        yield request


@dataclass(frozen=True)
class Repository:
    """A hub repository as the plan names it.

    Attributes:
        token: empty for anonymous access.
        proxy: address of the egress proxy, which all requests pass through.
    """

    repo: str
    revision: str
    endpoint: str
    token: str
    role: str
    proxy: str
    kind: ArtifactKind = ArtifactKind.CHECKPOINT

    @property
    def where(self) -> str:
        """The source, as messages name it."""
        return f"{self.repo} at revision {self.revision} on {self.endpoint or _PUBLIC}"

    @property
    def secret(self) -> str:
        """The Secret that holds the token, as messages name it."""
        return f"the Secret of the {self.role}'s huggingFace.tokenSecretRef"

    def resolve(self) -> Listing:
        """Request the commit of the revision, and the sizes and digests of its files.

        Raises:
            JobError: SourceNotFound, AuthFailed, RevisionNotFound or NetworkError.
        """
        set_client_factory(lambda: http_source.client(self.proxy))
        with _job_errors(self):
            api = HfApi(endpoint=self.endpoint or None, token=self.token or False)
            info = api.model_info(
                self.repo, revision=self.revision, files_metadata=True, timeout=_SECONDS
            )
        siblings = [s for s in info.siblings or [] if self.kind.includes(s.rfilename)]
        if not siblings or info.sha is None:
            raise download.no_matching_files(self.where, "configuration and no weights")
        with self._server() as server:
            files = tuple(self._file(server, info.sha, s) for s in siblings)
        identity = [self.endpoint, self.repo, info.sha]
        return Listing(identity, info.sha, sum(f.size for f in files), files)

    def download(self, listing: Listing, folder: Path) -> None:
        """Download the listed files; files that are complete in `folder` are skipped.

        Raises:
            JobError: the hub refused a request, the connection broke, or a file does not match the
                listing. Complete files stay in the directory.
        """
        with self._server() as server:

            def read(file: RemoteFile, offset: int) -> AbstractContextManager[Iterator[bytes]]:
                return server.read(self._url(listing.revision, file.name), offset)

            with download.reporting(folder, listing.bytes, self.role):
                download.transfer(listing.files, folder, read, self.where)

    @contextmanager
    def _server(self) -> Iterator[HttpSource]:
        auth = _TokenAuth(self.token) if self.token else None
        with http_source.client(self.proxy, auth) as client:
            yield HttpSource(client, self.where, self.secret)

    def _url(self, commit: str, name: str) -> str:
        return hf_hub_url(self.repo, name, revision=commit, endpoint=self.endpoint or None)

    def _file(self, server: HttpSource, commit: str, sibling: Any) -> RemoteFile:
        """One file of the listing; some mirrors state neither size nor digest."""
        name, size = sibling.rfilename, sibling.size
        if size is None:
            size = server.size(self._url(commit, name))
        if not isinstance(size, int) or size < 0:
            raise download.unreachable(self.where, f"the hub does not state the size of {name}")
        if sibling.lfs is not None:
            return RemoteFile(name, size, name, sha256=str(sibling.lfs.sha256))
        return RemoteFile(name, size, name, git=str(sibling.blob_id or ""))


def open_source(request: SourceRequest) -> AbstractContextManager[Repository]:
    """The repository that `repo` names, with `revision` and `endpoint` where given."""
    settings = request.settings
    return nullcontext(
        Repository(
            repo=settings["repo"],
            revision=settings.get("revision", "main"),
            endpoint=settings.get("endpoint", ""),
            token=request.secret("HF_TOKEN"),
            role=request.role,
            proxy=request.proxy.url,
            kind=request.kind,
        )
    )


@contextmanager
def _job_errors(repository: Repository) -> Iterator[None]:
    """Convert the errors of the hub's client to `JobError`."""
    secret = repository.secret
    try:
        yield
    except RevisionNotFoundError as error:
        raise JobError(
            FetchReason.REVISION_NOT_FOUND,
            f"{repository.repo} has no revision {repository.revision}: correct "
            f"huggingFace.revision of the {repository.role}",
        ) from error
    except (GatedRepoError, RepositoryNotFoundError) as error:
        status = _status(error)
        if status in (401, 403):
            raise JobError(
                FetchReason.AUTH_FAILED,
                f"the hub refused {repository.where} ({status}): it does not exist, is private or "
                f"gated; correct the name, or put a token with access into {secret}",
            ) from error
        raise JobError(
            FetchReason.SOURCE_NOT_FOUND,
            f"{repository.where} does not exist: correct huggingFace.repo",
        ) from error
    except HFValidationError as error:
        raise JobError(
            FetchReason.SOURCE_NOT_FOUND,
            f"{repository.repo} is no valid repository name: correct huggingFace.repo",
        ) from error
    except HfHubHTTPError as error:
        status = _status(error)
        if status in (401, 403):
            raise JobError(
                FetchReason.AUTH_FAILED,
                f"the hub refused {repository.where} ({status}): put a token with access into "
                f"{secret}",
            ) from error
        raise download.unreachable(repository.where, f"HTTP status {status}") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise download.unreachable(repository.where, http_source.cause(error)) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        cause = "the hub's response describes no model"
        raise download.unreachable(repository.where, cause) from error


def _status(error: HfHubHTTPError) -> int:
    response: Any = error.response
    return int(response.status_code) if response is not None else 0
