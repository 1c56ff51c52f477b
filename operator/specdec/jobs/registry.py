"""Parse OCI references and authenticate with registries.

`oci` uses `Reference` for the URLs of a repository, and `RegistryAuth` for its requests.
Credentials are never quoted in a message. They go to a token server without TLS only if the
registry itself is on loopback.
"""

import base64
import json
import re
from collections.abc import Generator
from dataclasses import dataclass

import httpx
from typing_extensions import override

from specdec.api.reasons import FetchReason
from specdec.jobs.http_source import ResponseError
from specdec.jobs.result import JobError

_HUB = "docker.io"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HOST = re.compile(r"[A-Za-z0-9.-]+(?::[0-9]{1,5})?")
_LOOPBACK = re.compile(r"(?:localhost|127\.[0-9.]+)(?::[0-9]+)?")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Reference:
    """A registry, a repository in it, and a tag or digest (`name`)."""

    registry: str
    repository: str
    name: str

    @classmethod
    def parse(cls, text: str, role: str) -> "Reference":
        """Parse a reference; raises JobError (SourceNotFound) if it is invalid."""
        path, _, digest = text.partition("@")
        first, slash, rest = path.partition("/")
        if not slash or not ("." in first or ":" in first or first == "localhost"):
            first, rest = _HUB, path if slash else f"library/{path}"
        repository, _, tag = rest.partition(":")
        name = digest or tag or "latest"
        is_valid = _HOST.fullmatch(first) and _NAME.fullmatch(repository)
        if not is_valid or not (_DIGEST if digest else _TAG).fullmatch(name):
            raise JobError(
                FetchReason.SOURCE_NOT_FOUND,
                f"oci.reference of the {role} is {text[:200]!r}: write "
                "registry/repository:tag or registry/repository@sha256:digest",
            )
        return cls(first, repository, name)

    @property
    def scheme(self) -> str:
        """Plain HTTP for loopback addresses only, as container runtimes do."""
        return "http" if _LOOPBACK.fullmatch(self.registry) else "https"

    @property
    def base(self) -> str:
        """The base URL of the repository's manifests and blobs."""
        host = "registry-1.docker.io" if self.registry == _HUB else self.registry
        return f"{self.scheme}://{host}/v2/{self.repository}"


def registry_credentials(config: str, registry: str, secret: str) -> tuple[str, str] | None:
    """User and password for a registry from a Docker configuration; None if it has no entry.

    Args:
        config: JSON, or empty.
        registry: host name.
        secret: the Secret with the configuration, for messages.

    Raises:
        JobError: AuthFailed if the configuration cannot be read; it is never quoted.
    """
    if not config:
        return None
    try:
        entries = json.loads(config)["auths"]
        known = {_host(name): entry for name, entry in entries.items()}
        entry = known.get(registry)
        if entry is None:
            return None
        if entry.get("auth"):
            user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
            return user, password
        return str(entry["username"]), str(entry["password"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise JobError(
            FetchReason.AUTH_FAILED,
            f"{secret} holds no valid docker configuration: create it with kubectl create "
            "secret docker-registry",
        ) from None


def _host(name: str) -> str:
    """The registry host in a key of the configuration, which may be a URL."""
    host = name.partition("://")[2] or name
    host = host.partition("/")[0]
    return _HUB if host in ("index.docker.io", "registry-1.docker.io") else host


class RegistryAuth(httpx.Auth):
    """Answers a registry's authentication challenge, with a password or a token."""

    requires_response_body = False

    def __init__(self, credentials: tuple[str, str] | None, scheme: str) -> None:
        self._credentials, self._scheme = credentials, scheme
        self._header = ""

    @override
    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the request, and repeat it with the authentication that a 401 response requires."""
        if self._header:
            request.headers["Authorization"] = self._header
        response = yield request
        if response.status_code != httpx.codes.UNAUTHORIZED:
            return
        kind, _, rest = response.headers.get("WWW-Authenticate", "").partition(" ")
        if kind.lower() == "bearer":
            self._read_token((yield self._token_request(dict(_CHALLENGE.findall(rest)))))
        elif kind.lower() == "basic" and self._credentials:
            self._header = self._basic()
        else:
            return
        if self._header:
            request.headers["Authorization"] = self._header
            yield request

    def _token_request(self, challenge: dict[str, str]) -> httpx.Request:
        try:
            realm = httpx.URL(challenge.get("realm", ""))
        except httpx.InvalidURL as error:
            raise ResponseError("the registry's token server has no valid address") from error
        if realm.scheme != "https" and self._scheme == "https":
            raise ResponseError("the registry's token server has no TLS")
        params = {key: value for key, value in challenge.items() if key in ("service", "scope")}
        request = httpx.Request("GET", realm.copy_merge_params(params))
        if self._credentials:
            request.headers["Authorization"] = self._basic()
        return request

    def _basic(self) -> str:
        pair = ":".join(self._credentials or ())
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    def _read_token(self, response: httpx.Response) -> None:
        """Read the token; after a refusal, the registry's 401 remains the final response."""
        response.read()
        self._header = ""
        if response.is_success:
            try:
                body = response.json()
                self._header = f"Bearer {body.get('token') or body['access_token']}"
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ResponseError("the token server's response has no token") from error
