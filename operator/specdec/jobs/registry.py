"""How an OCI registry is addressed and logged in to."""

import base64
import json
import re
from collections.abc import Generator
from dataclasses import dataclass

import httpx
from typing_extensions import override

from specdec.api.reasons import FetchReason
from specdec.jobs.http_source import AnswerError
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
    """A registry, a repository in it, and a tag or digest."""

    registry: str
    repository: str
    name: str

    @classmethod
    def parse(cls, text: str, role: str) -> "Reference":
        """Read a reference; raises JobError (SourceNotFound) when it is none."""
        path, _, digest = text.partition("@")
        first, slash, rest = path.partition("/")
        if not slash or not ("." in first or ":" in first or first == "localhost"):
            first, rest = _HUB, path if slash else f"library/{path}"
        repository, _, tag = rest.partition(":")
        name = digest or tag or "latest"
        shaped = _HOST.fullmatch(first) and _NAME.fullmatch(repository)
        if not shaped or not (_DIGEST if digest else _TAG).fullmatch(name):
            raise JobError(
                FetchReason.SOURCE_NOT_FOUND,
                f"oci.reference of the {role} is {text[:200]!r}: write "
                "registry/repository:tag or registry/repository@sha256:digest",
            )
        return cls(first, repository, name)

    @property
    def scheme(self) -> str:
        """Plain HTTP on the loopback only, as container runtimes do."""
        return "http" if _LOOPBACK.fullmatch(self.registry) else "https"

    @property
    def base(self) -> str:
        """Address under which manifests and blobs of the repository are."""
        host = "registry-1.docker.io" if self.registry == _HUB else self.registry
        return f"{self.scheme}://{host}/v2/{self.repository}"


def login(config: str, registry: str, secret: str) -> tuple[str, str] | None:
    """User and password for a registry from a docker configuration; None when it has none.

    Raises:
        JobError: AuthFailed when the configuration cannot be read; it is never quoted.
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
            f"{secret} holds no docker configuration: make it with kubectl create "
            "secret docker-registry",
        ) from None


def _host(name: str) -> str:
    """The registry of a configuration's key, which may be an address."""
    host = name.partition("://")[2] or name
    host = host.partition("/")[0]
    return _HUB if host in ("index.docker.io", "registry-1.docker.io") else host


class RegistryAuth(httpx.Auth):
    """Logs in when the registry asks, by password or by the token of its token server."""

    requires_response_body = False

    def __init__(self, login: tuple[str, str] | None, scheme: str) -> None:
        self._login, self._scheme = login, scheme
        self._header = ""

    @override
    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Ask, and once more with what the registry's challenge wants."""
        if self._header:
            request.headers["Authorization"] = self._header
        response = yield request
        if response.status_code != httpx.codes.UNAUTHORIZED:
            return
        kind, _, rest = response.headers.get("WWW-Authenticate", "").partition(" ")
        if kind.lower() == "bearer":
            self._read((yield self._question(dict(_CHALLENGE.findall(rest)))))
        elif kind.lower() == "basic" and self._login:
            self._header = self._basic()
        else:
            return
        if self._header:
            request.headers["Authorization"] = self._header
            yield request

    def _question(self, challenge: dict[str, str]) -> httpx.Request:
        try:
            realm = httpx.URL(challenge.get("realm", ""))
        except httpx.InvalidURL as error:
            raise AnswerError("the registry's token server has no valid address") from error
        if realm.scheme != "https" and self._scheme == "https":
            raise AnswerError("the registry sends logins to a server without TLS")
        params = {key: value for key, value in challenge.items() if key in ("service", "scope")}
        request = httpx.Request("GET", realm.copy_merge_params(params))
        if self._login:
            request.headers["Authorization"] = self._basic()
        return request

    def _basic(self) -> str:
        pair = ":".join(self._login or ())
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    def _read(self, response: httpx.Response) -> None:
        """Take the token; a refusal leaves the registry's own 401 to be told."""
        response.read()
        self._header = ""
        if response.is_success:
            try:
                answer = response.json()
                self._header = f"Bearer {answer.get('token') or answer['access_token']}"
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise AnswerError("the token server's answer has no token") from error
