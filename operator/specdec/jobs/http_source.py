"""Files over plain HTTP: requests whose failures speak, downloads that go on where they broke.

No message quotes what a server sends: it may be somebody else's secret.
"""

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from typing_extensions import override

from specdec.api.reasons import FetchReason
from specdec.jobs import download
from specdec.jobs.download import BrokenError
from specdec.jobs.result import JobError

_TIMEOUT = httpx.Timeout(60.0, connect=20.0)
# Answers that are small by nature: a larger or slower one is no answer to our question.
_ANSWER_BYTES = 8 << 20
_ANSWER_SECONDS = 120.0


class AnswerError(httpx.RequestError):
    """An answer that is of no use; the message is a sentence of ours."""


@dataclass(frozen=True)
class HttpSource:
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
                response.read()
                return response
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise download.unreachable(self.where, reason(error)) from error

    def json(self, url: str) -> dict[str, Any]:
        """GET a JSON object."""
        try:
            value = self.ask(url).json()
        except ValueError as error:
            raise download.unreachable(self.where, "the server does not answer in JSON") from error
        if not isinstance(value, dict):
            raise download.unreachable(self.where, "the server answers with no JSON object")
        return value

    def size(self, url: str) -> int | None:
        """The bytes of a file as its head states them; None when it does not.

        Raises:
            JobError: SourceNotFound, AuthFailed or NetworkError.
        """
        try:
            response = self.client.head(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise download.unreachable(self.where, reason(error)) from error
        self._refuse(response)
        stated = response.headers.get("Content-Length", "")
        return int(stated) if stated.isdecimal() else None

    @contextmanager
    def read(self, url: str, offset: int) -> Iterator[Iterator[bytes]]:
        """The bytes of a file from an offset on."""
        headers = {"Range": f"bytes={offset}-"}
        try:
            with self.client.stream("GET", url, headers=headers) as response:
                self._refuse(response)
                # Blocks as they come: larger ones would lose what came before a break.
                skip = offset if response.status_code == httpx.codes.OK else 0
                yield _after(response.iter_raw(), skip)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BrokenError(reason(error)) from error

    def _refuse(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise JobError(
                FetchReason.AUTH_FAILED,
                f"the server refused {self.where} ({status}): give {self.secret} credentials "
                "that may read it",
            )
        if status == httpx.codes.NOT_FOUND:
            raise JobError(
                FetchReason.SOURCE_NOT_FOUND,
                f"{self.where} does not exist: correct the name or its version",
            )
        if not response.is_success:
            raise download.unreachable(self.where, f"answer {status}")


def client(proxy: str, auth: httpx.Auth | None = None) -> httpx.Client:
    """A client that asks through the guard and follows redirects.

    Credentials stay with the host they are for.
    """
    return httpx.Client(
        auth=auth,
        # Compressed on the way, a file would have no offsets, and a small answer no limit.
        headers={"Accept-Encoding": "identity"},
        follow_redirects=True,
        timeout=_TIMEOUT,
        transport=_Bounded(httpx.HTTPTransport(proxy=proxy)),
    )


def reason(error: Exception) -> str:
    """What went wrong, without a word of the server's."""
    if isinstance(error, AnswerError):
        return str(error)
    if isinstance(error, httpx.TooManyRedirects):
        return "it redirects without end"
    if isinstance(error, httpx.TimeoutException):
        return "it does not answer in time"
    if isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL):
        return "it leads to what is no HTTP address"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "its certificate is not trusted"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.ConnectError | httpx.ProxyError):
        return "it does not take connections"
    return "the connection broke"


class _Bounded(httpx.BaseTransport):
    """Every answer but the bytes of a file that was asked for ends in time and in size.

    Those of token servers and of redirects too, which the client reads by itself.
    """

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    @override
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its answer is bounded unless it is a part of a file.

        Raises:
            AnswerError: the answer is compressed.
        """
        response = self._inner.handle_request(request)
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            response.close()
            raise AnswerError("its answer is compressed, which nobody asked for")
        if "Range" in request.headers and response.is_success:
            return response
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_Small(response.stream),
            extensions=response.extensions,
        )

    @override
    def close(self) -> None:
        self._inner.close()


class _Small(httpx.SyncByteStream):
    """The bytes of a small answer."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @override
    def __iter__(self) -> Iterator[bytes]:
        count, end = 0, time.monotonic() + _ANSWER_SECONDS
        for block in self._inner:
            count += len(block)
            if count > _ANSWER_BYTES or time.monotonic() > end:
                raise AnswerError("the server's answer has no end")
            yield block

    @override
    def close(self) -> None:
        self._inner.close()


def _after(blocks: Iterator[bytes], skip: int) -> Iterator[bytes]:
    """Without the first bytes: the server took no notice of the range."""
    for block in blocks:
        if skip < len(block):
            yield block[skip:]
        skip = max(0, skip - len(block))
