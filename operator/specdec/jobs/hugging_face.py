"""Checkpoints from a Hugging Face hub: resolve a revision, download what is missing."""

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
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

_PUBLIC = "https://huggingface.co"
_SECONDS = 60.0


class _TokenAuth(httpx.Auth):
    """The token for the hub itself; a redirect to another host goes without it."""

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
    """A hub repository as the plan names it; `token` is empty for anonymous access.

    `proxy` is the guard that everything is asked through.
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
        """How messages name it."""
        return f"{self.repo} at revision {self.revision} on {self.endpoint or _PUBLIC}"

    @property
    def secret(self) -> str:
        """Where messages say that a token belongs."""
        return f"the Secret of the {self.role}'s huggingFace.tokenSecretRef"

    def resolve(self) -> Listing:
        """Ask the hub what the revision is, and what digests its files have.

        Raises:
            JobError: SourceNotFound, AuthFailed, RevisionNotFound or NetworkError.
        """
        set_client_factory(lambda: http_source.client(self.proxy))
        with _explained(self):
            api = HfApi(endpoint=self.endpoint or None, token=self.token or False)
            info = api.model_info(
                self.repo, revision=self.revision, files_metadata=True, timeout=_SECONDS
            )
        siblings = [s for s in info.siblings or [] if self.kind.includes(s.rfilename)]
        if not siblings or info.sha is None:
            raise download.nothing(self.where, "configuration and no weights")
        with self._server() as server:
            files = tuple(self._file(server, info.sha, s) for s in siblings)
        identity = [self.endpoint, self.repo, info.sha]
        return Listing(identity, info.sha, sum(f.size for f in files), files)

    def download(self, listing: Listing, folder: Path) -> None:
        """Download the files that count; what is there already is not sent again.

        Raises:
            JobError: the hub refused, the connection broke, or a file is not what the listing
                states; what has arrived whole stays.
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
        """A file of the listing; some mirrors state neither size nor digest."""
        name, size = sibling.rfilename, sibling.size
        if size is None:
            size = server.size(self._url(commit, name))
        if not isinstance(size, int) or size < 0:
            raise download.unreachable(self.where, f"the hub states no size of {name}")
        if sibling.lfs is not None:
            return RemoteFile(name, size, name, sha256=str(sibling.lfs.sha256))
        return RemoteFile(name, size, name, git=str(sibling.blob_id or ""))


@contextmanager
def _explained(repository: Repository) -> Iterator[None]:
    """Say in one sentence what the hub's client says in classes."""
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
            FetchReason.SOURCE_NOT_FOUND, f"{repository.repo} is no repository name"
        ) from error
    except HfHubHTTPError as error:
        status = _status(error)
        if status in (401, 403):
            raise JobError(
                FetchReason.AUTH_FAILED,
                f"the hub refused {repository.where} ({status}): put a token with access into "
                f"{secret}",
            ) from error
        raise download.unreachable(repository.where, f"answer {status}") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise download.unreachable(repository.where, http_source.reason(error)) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        why = "the hub's answer describes no model"
        raise download.unreachable(repository.where, why) from error


def _status(error: HfHubHTTPError) -> int:
    response: Any = error.response
    return int(response.status_code) if response is not None else 0
