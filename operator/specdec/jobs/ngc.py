"""Fetch a model version from the NVIDIA NGC catalogue.

`sources` calls `open_source`; the `Version` it yields implements `download.Remote`. An API key is
exchanged for short-lived tokens where NGC requires that; without a key, requests are anonymous.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from typing_extensions import override

from specdec.api.reasons import FetchReason
from specdec.jobs import download, http_source
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.download import Listing, RemoteFile
from specdec.jobs.http_source import HttpSource, ResponseError
from specdec.jobs.result import JobError
from specdec.jobs.source_request import SourceRequest

_CATALOGUE = "https://api.ngc.nvidia.com"
_TOKENS = "https://authn.nvidia.com"
_PAGE = 100
_PAGES = 100


class _KeyAuth(httpx.Auth):
    """Authenticates with an NGC API key.

    A personal key (`nvapi-`) is the bearer token itself; an older key is exchanged for one.
    """

    requires_response_body = False

    def __init__(self, key: str, tokens: str, scope: list[str]) -> None:
        self._key, self._tokens, self._scope = key, tokens, scope
        self._token = key if key.startswith("nvapi-") else ""

    @override
    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        if not self._token:
            token_response = yield self._exchange()
            self._read_token(token_response)
        response = yield self._signed(request)
        if response.status_code == httpx.codes.UNAUTHORIZED and self._token != self._key:
            # A token expires after minutes, and a large download takes hours.
            token_response = yield self._exchange()
            self._read_token(token_response)
            yield self._signed(request)

    def _signed(self, request: httpx.Request) -> httpx.Request:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def _exchange(self) -> httpx.Request:
        query = urlencode([("service", "ngc"), *(("scope", group) for group in self._scope)])
        request = httpx.Request("GET", f"{self._tokens}/token?{query}")
        basic = httpx.BasicAuth("$oauthtoken", self._key)
        return next(basic.auth_flow(request))

    def _read_token(self, response: httpx.Response) -> None:
        response.read()
        if response.is_success:
            try:
                self._token = str(response.json()["token"])
            except (ValueError, KeyError, TypeError) as error:
                raise ResponseError("the token server's response has no token") from error


@dataclass(frozen=True)
class Version:
    """One version of a model; `base` is its URL without the trailing `/files`."""

    web: HttpSource
    base: str
    resource: str
    role: str
    kind: ArtifactKind

    def resolve(self) -> Listing:
        """List the files at the root of the version."""
        files = sorted(self._files(), key=lambda file: file.name)
        if not files:
            raise download.no_matching_files(self.web.where, "matching file")
        identity = [self.base, [[f.name, f.size, f.sha256] for f in files]]
        version = self.resource.rpartition(":")[2]
        return Listing(identity, version, sum(f.size for f in files), tuple(files))

    def download(self, listing: Listing, folder: Path) -> None:
        """Download every file by its own URL, several files at a time."""

        def read(file: RemoteFile, offset: int) -> AbstractContextManager[Iterator[bytes]]:
            return self.web.read(f"{self.base}/files/{quote(file.key)}", offset)

        with download.reporting(folder, listing.bytes, self.role):
            download.transfer(listing.files, folder, read, self.web.where)

    def _files(self) -> Iterator[RemoteFile]:
        for page in range(_PAGES):
            address = f"{self.base}/files?page-number={page}&page-size={_PAGE}"
            response = self.web.json(address)
            yield from filter(None, map(self._file, response.get("modelFiles") or []))
            pagination = response.get("paginationInfo") or {}
            if page + 1 >= int(pagination.get("totalPages") or 1):
                return

    def _file(self, entry: Mapping[str, Any]) -> RemoteFile | None:
        path = str(entry.get("path", ""))
        name = path.removeprefix("/")
        size = entry.get("sizeInBytes")
        if not self.kind.includes(name) or not isinstance(size, int) or size < 0:
            return None
        return RemoteFile(name, size, name)


@contextmanager
def open_source(request: SourceRequest) -> Iterator[Version]:
    """Open the version that `org/team/model:version` or `org/model:version` names.

    Raises:
        JobError: SourceNotFound if the name has another form.
    """
    role, key = request.role, request.secret("NGC_API_KEY")
    resource, endpoint = str(request.settings["resource"]), request.settings.get("endpoint")
    path, _, number = resource.partition(":")
    parts = [quote(part, safe="") for part in path.split("/")]
    if len(parts) not in (2, 3) or not number or not all(parts) or {".", ".."} & {*parts, number}:
        raise JobError(
            FetchReason.SOURCE_NOT_FOUND,
            f"ngc.resource of the {role} is {resource!r}: write org/team/model:version",
        )
    org, *team, model = parts
    catalogue = str(endpoint or _CATALOGUE).rstrip("/")
    end = f"versions/{quote(number, safe='')}"
    if key:
        teams = f"/team/{team[0]}" if team else ""
        base = f"{catalogue}/v2/org/{org}{teams}/models/{model}/{end}"
    else:
        base = f"{catalogue}/v2/models/{'/'.join([org, *team, model])}/{end}"
    groups = [f"group/ngc:{'/'.join(parts[:n])}" for n in range(1, len(parts))]
    auth = _KeyAuth(key, str(endpoint or _TOKENS).rstrip("/"), groups)
    secret = f"the Secret of the {role}'s ngc.authSecretRef"
    with http_source.client(request.proxy.url, auth if key else None) as client:
        server = HttpSource(client, f"{resource} of the {role}", secret)
        yield Version(server, base, resource, role, request.kind)
