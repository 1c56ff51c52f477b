"""Files over plain HTTP: requests whose failures speak, downloads that go on where they broke."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from specdec.jobs import remote
from specdec.jobs.remote import BrokenError
from specdec.jobs.result import JobError

_TIMEOUT = httpx.Timeout(60.0, connect=20.0)
# Answers that are small by nature; a larger one is no answer to our question.
_ANSWER_BYTES = 8 << 20


@dataclass(frozen=True)
class Web:
    """A server of one source: `where` names the source, `secret` where its credentials are."""

    client: httpx.Client
    where: str
    secret: str

    def ask(self, url: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """GET a small answer.

        Raises:
            JobError: SourceNotFound, AuthFailed or NetworkError.
        """
        try:
            with self.client.stream("GET", url, headers=headers) as response:
                self._refuse(response)
                body = bytearray()
                for block in response.iter_bytes():
                    body += block
                    if len(body) > _ANSWER_BYTES:
                        raise remote.unreachable(self.where, "the server's answer has no end")
                return httpx.Response(200, headers=_plain(response.headers), content=bytes(body))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise remote.unreachable(self.where, _words(error)) from error

    def json(self, url: str) -> dict[str, Any]:
        """GET a JSON object."""
        try:
            value = self.ask(url).json()
        except ValueError as error:
            raise remote.unreachable(self.where, "the server does not answer in JSON") from error
        if not isinstance(value, dict):
            raise remote.unreachable(self.where, "the server answers with no JSON object")
        return value

    @contextmanager
    def read(self, url: str, offset: int) -> Iterator[Iterator[bytes]]:
        """The bytes of a file from an offset on."""
        # Compressed on the way, a file would have no offsets.
        headers = {"Accept-Encoding": "identity", "Range": f"bytes={offset}-"}
        try:
            with self.client.stream("GET", url, headers=headers) as response:
                self._refuse(response)
                # Blocks as they come: larger ones would lose what came before a break.
                skip = offset if response.status_code == httpx.codes.OK else 0
                yield _after(response.iter_raw(), skip)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BrokenError(_words(error)) from error

    def _refuse(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise JobError(
                "AuthFailed",
                f"the server refused {self.where} ({status}): give {self.secret} credentials "
                "that may read it",
            )
        if status == httpx.codes.NOT_FOUND:
            raise JobError(
                "SourceNotFound", f"{self.where} does not exist: correct the name or its version"
            )
        if not response.is_success:
            raise remote.unreachable(self.where, f"answer {status}")


def client(auth: httpx.Auth | None = None) -> httpx.Client:
    """A client that follows redirects; credentials stay with the host they are for."""
    return httpx.Client(auth=auth, follow_redirects=True, timeout=_TIMEOUT)


def _after(blocks: Iterator[bytes], skip: int) -> Iterator[bytes]:
    """Without the first bytes: the server took no notice of the range."""
    for block in blocks:
        if skip < len(block):
            yield block[skip:]
        skip = max(0, skip - len(block))


def _plain(headers: httpx.Headers) -> dict[str, str]:
    dropped = ("content-encoding", "content-length", "transfer-encoding")
    return {name: value for name, value in headers.items() if name not in dropped}


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
