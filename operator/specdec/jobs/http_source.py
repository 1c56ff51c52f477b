"""HTTP requests to a source: small responses with limits, and resumable downloads of files.

`oci`, `ngc` and `hugging_face` use `HttpSource` with a `client` that sends everything through the
egress proxy. HTTP errors become `JobError` with a documented reason. No message quotes a response,
which may contain somebody else's secret.
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
# Limits of every response except a file: listings, manifests, tokens and redirects are small.
_RESPONSE_BYTES = 8 << 20
_RESPONSE_SECONDS = 120.0


class ResponseError(httpx.RequestError):
    """A response is invalid; the message comes from this package, not from the server."""


@dataclass(frozen=True)
class HttpSource:
    """The HTTP server of one source.

    Attributes:
        client: sends the requests.
        where: the source, for messages.
        secret: the Secret with its credentials, for messages.
    """

    client: httpx.Client
    where: str
    secret: str

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """GET a small response.

        Raises:
            JobError: SourceNotFound, AuthFailed or NetworkError.
        """
        try:
            with self.client.stream("GET", url, headers=headers) as response:
                self._raise_for_status(response)
                response.read()
                return response
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise download.unreachable(self.where, cause(error)) from error

    def json(self, url: str) -> dict[str, Any]:
        """GET a JSON object."""
        try:
            value = self.get(url).json()
        except ValueError as error:
            raise download.unreachable(self.where, "the server's response is not JSON") from error
        if not isinstance(value, dict):
            raise download.unreachable(self.where, "the server's response is no JSON object")
        return value

    def size(self, url: str) -> int | None:
        """The size of a file in bytes, by a HEAD request; None if the server does not state it.

        Raises:
            JobError: SourceNotFound, AuthFailed or NetworkError.
        """
        try:
            response = self.client.head(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise download.unreachable(self.where, cause(error)) from error
        self._raise_for_status(response)
        stated = response.headers.get("Content-Length", "")
        return int(stated) if stated.isdecimal() else None

    @contextmanager
    def read(self, url: str, offset: int) -> Iterator[Iterator[bytes]]:
        """Open a file at an offset and yield its bytes; raises BrokenError or JobError."""
        headers = {"Range": f"bytes={offset}-"}
        try:
            with self.client.stream("GET", url, headers=headers) as response:
                self._raise_for_status(response)
                # Yield blocks as they arrive: collecting larger ones loses bytes on a break.
                skip = offset if response.status_code == httpx.codes.OK else 0
                yield _skip(response.iter_raw(), skip)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BrokenError(cause(error)) from error

    def _raise_for_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise JobError(
                FetchReason.AUTH_FAILED,
                f"the server refused {self.where} ({status}): put credentials with read access "
                f"into {self.secret}",
            )
        if status == httpx.codes.NOT_FOUND:
            raise JobError(
                FetchReason.SOURCE_NOT_FOUND,
                f"{self.where} does not exist: correct the name or its version",
            )
        if not response.is_success:
            raise download.unreachable(self.where, f"HTTP status {status}")


def client(proxy: str, auth: httpx.Auth | None = None) -> httpx.Client:
    """An HTTP client that uses the egress proxy at `proxy` and follows redirects.

    httpx sends credentials only to the host that they are for.
    """
    return httpx.Client(
        auth=auth,
        # A compressed file has no byte offsets, and a compressed response no reliable size limit.
        headers={"Accept-Encoding": "identity"},
        follow_redirects=True,
        timeout=_TIMEOUT,
        transport=_BoundedTransport(httpx.HTTPTransport(proxy=proxy)),
    )


def cause(error: Exception) -> str:
    """The cause of a failed request, without any text from the server."""
    if isinstance(error, ResponseError):
        return str(error)
    if isinstance(error, httpx.TooManyRedirects):
        return "too many redirects"
    if isinstance(error, httpx.TimeoutException):
        return "the request timed out"
    if isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL):
        return "it redirects to an address that is not HTTP"
    chained: BaseException | None = error
    while chained is not None:
        if isinstance(chained, ssl.SSLCertVerificationError):
            return "its certificate is not trusted"
        chained = chained.__cause__ or chained.__context__
    if isinstance(error, httpx.ConnectError | httpx.ProxyError):
        return "it does not accept connections"
    return "the connection broke"


class _BoundedTransport(httpx.BaseTransport):
    """Limits the size and duration of every response except a requested file range.

    The limit also covers responses that the client reads itself: redirects and token servers.
    """

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    @override
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and limit its response, unless it is a file range.

        Raises:
            ResponseError: the response is compressed.
        """
        response = self._inner.handle_request(request)
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            response.close()
            raise ResponseError("its response is compressed, although the request excludes that")
        if "Range" in request.headers and response.is_success:
            return response
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_BoundedStream(response.stream),
            extensions=response.extensions,
        )

    @override
    def close(self) -> None:
        self._inner.close()


class _BoundedStream(httpx.SyncByteStream):
    """The bytes of a response, with a limit on size and duration."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @override
    def __iter__(self) -> Iterator[bytes]:
        count, deadline = 0, time.monotonic() + _RESPONSE_SECONDS
        for block in self._inner:
            count += len(block)
            if count > _RESPONSE_BYTES or time.monotonic() > deadline:
                raise ResponseError("the server's response is too large or too slow")
            yield block

    @override
    def close(self) -> None:
        self._inner.close()


def _skip(blocks: Iterator[bytes], skip: int) -> Iterator[bytes]:
    """The blocks without the first `skip` bytes, for a server that ignored the Range header."""
    for block in blocks:
        if skip < len(block):
            yield block[skip:]
        skip = max(0, skip - len(block))
