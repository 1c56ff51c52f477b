"""Checkpoints from a Hugging Face hub: resolve a revision, download what is missing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from specdec.jobs import remote
from specdec.jobs.kind import Kind
from specdec.jobs.remote import Listing
from specdec.jobs.result import JobError

_PUBLIC = "https://huggingface.co"


@dataclass(frozen=True)
class Repository:
    """A hub repository as the plan names it; `token` is empty for anonymous access."""

    repo: str
    revision: str
    endpoint: str
    token: str
    role: str
    kind: Kind = Kind.CHECKPOINT

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"{self.repo} at revision {self.revision} on {self.endpoint or _PUBLIC}"

    def resolve(self) -> Listing:
        """Ask the hub what the revision is.

        Raises:
            JobError: SourceNotFound, AuthFailed, RevisionNotFound or NetworkError.
        """
        with _explained(self):
            api = HfApi(endpoint=self.endpoint or None, token=self.token or False)
            info = api.model_info(self.repo, revision=self.revision, files_metadata=True)
        siblings = [s for s in info.siblings or [] if self.kind.wants(s.rfilename)]
        if not siblings or info.sha is None:
            raise remote.nothing(self.where, "configuration and no weights")
        identity = [self.endpoint, self.repo, info.sha]
        return Listing(identity, info.sha, sum(s.size or 0 for s in siblings))

    def download(self, listing: Listing, folder: Path) -> None:
        """Download the files that count; what is there already is not sent again.

        Raises:
            JobError: the hub refused or the connection broke; what has arrived stays.
        """
        with remote.reporting(folder, listing.bytes, self.role), _explained(self):
            snapshot_download(
                self.repo,
                revision=listing.revision,
                local_dir=folder,
                endpoint=self.endpoint or None,
                token=self.token or False,
                allow_patterns=list(self.kind.value),
                # Only the top of the repository: other formats live in folders below it.
                ignore_patterns=["*/*", ".*"],
                max_workers=4,
            )
        shutil.rmtree(folder / ".cache", ignore_errors=True)


@contextmanager
def _explained(repository: Repository) -> Iterator[None]:
    """Say in one sentence what the hub's client says in classes."""
    secret = f"the Secret of the {repository.role}'s huggingFace.tokenSecretRef"
    try:
        yield
    except RevisionNotFoundError as error:
        raise JobError(
            "RevisionNotFound",
            f"{repository.repo} has no revision {repository.revision}: correct "
            f"huggingFace.revision of the {repository.role}",
        ) from error
    except (GatedRepoError, RepositoryNotFoundError) as error:
        status = _status(error)
        if status in (401, 403):
            raise JobError(
                "AuthFailed",
                f"the hub refused {repository.where} ({status}): it does not exist, is private or "
                f"gated; correct the name, or put a token with access into {secret}",
            ) from error
        raise JobError(
            "SourceNotFound", f"{repository.where} does not exist: correct huggingFace.repo"
        ) from error
    except HFValidationError as error:
        raise JobError("SourceNotFound", f"{repository.repo} is no repository name") from error
    except LocalEntryNotFoundError as error:
        raise _unreachable(repository, error.__cause__ or error) from error
    except HfHubHTTPError as error:
        status = _status(error)
        if status in (401, 403):
            raise JobError(
                "AuthFailed",
                f"the hub refused {repository.where} ({status}): put a token with access into "
                f"{secret}",
            ) from error
        raise _unreachable(repository, f"answer {status}") from error
    except httpx.HTTPError as error:
        raise _unreachable(repository, error) from error


def _unreachable(repository: Repository, why: object) -> JobError:
    return JobError(
        "NetworkError",
        f"{repository.where} cannot be downloaded ({why}): check that pods reach the hub, or set "
        "huggingFace.endpoint to a mirror",
        permanent=False,
    )


def _status(error: HfHubHTTPError) -> int:
    response: Any = error.response
    return int(response.status_code) if response is not None else 0
