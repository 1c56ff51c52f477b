"""What the guard speaks: with clients that know it as their proxy, and with proxies behind it."""

import asyncio
import base64
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

_PORTS = {"http": 80, "https": 443}
# Of the head of a request, what concerns this connection alone.
_OWN = ("connection", "proxy-connection", "proxy-authorization", "keep-alive")


class ConnectionFailedError(Exception):
    """No connection; the message is a sentence of ours."""


@dataclass(frozen=True)
class Proxy:
    """A proxy that the environment names; `login` is `user:password` or empty."""

    host: str
    port: int
    tls: bool
    login: str

    @property
    def header(self) -> bytes:
        """The line that logs in to it."""
        if not self.login:
            return b""
        basic = base64.b64encode(self.login.encode())
        return b"Proxy-Authorization: Basic " + basic + b"\r\n"


@dataclass(frozen=True)
class UpstreamProxies:
    """HTTPS_PROXY, HTTP_PROXY and NO_PROXY as the pod has them, by scheme in lower case."""

    proxies: Mapping[str, str]

    @classmethod
    def from_environment(cls) -> "UpstreamProxies":
        """Read the variables."""
        return cls(urllib.request.getproxies_environment())

    def proxy(self, scheme: str, host: str) -> Proxy | None:
        """The proxy that leads to a host; None when there is none.

        Raises:
            UnreachableError: the variable holds no address of a proxy.
        """
        address = self.proxies.get(scheme) or self.proxies.get("all")
        if not address or urllib.request.proxy_bypass(host, self.proxies):
            return None
        try:
            url = urlsplit(address if "://" in address else f"http://{address}")
            port = url.port or _PORTS[url.scheme]
        except (ValueError, KeyError):
            raise ConnectionFailedError("the proxy's address cannot be read") from None
        login = ":".join(unquote(part) for part in (url.username, url.password) if part)
        return Proxy(url.hostname or "", port, url.scheme == "https", login)

    @staticmethod
    def context() -> ssl.SSLContext:
        """Whose certificates a proxy with TLS may have: SSL_CERT_FILE's, or the image's."""
        return ssl.create_default_context()


@dataclass(frozen=True)
class Request:
    """A client's request: a tunnel (CONNECT), or one whole request in the clear."""

    method: bytes
    scheme: str
    host: str
    port: int
    target: bytes
    headers: bytes

    @classmethod
    def parse(cls, head: bytes) -> "Request":
        """Read the head of a request; raises ValueError when it is none for a proxy."""
        line, _, headers = head.partition(b"\r\n")
        method, target, _ = line.split(b" ")
        address = target.decode("ascii")
        url = urlsplit(f"https://{address}" if method == b"CONNECT" else address)
        if url.scheme not in _PORTS or not url.hostname:
            raise ValueError("no address")
        port = url.port or _PORTS[url.scheme]
        return cls(method, url.scheme, url.hostname, port, target, headers)

    @property
    def tunnel(self) -> bool:
        """Whether the bytes after the head are the client's and the server's alone."""
        return self.method == b"CONNECT"

    async def send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, proxy: Proxy | None
    ) -> None:
        """Hand the request on, or have the next proxy open the tunnel.

        Raises:
            UnreachableError: the next proxy does not open it.
        """
        login = proxy.header if proxy is not None else b""
        if not self.tunnel:
            target = self.target if proxy is not None else _path(self.target)
            kept = _without(self.headers, _OWN)
            line = self.method + b" " + target + b" HTTP/1.1\r\n"
            writer.write(line + b"Connection: close\r\n" + login + kept)
        elif proxy is not None:
            writer.write(
                b"CONNECT "
                + self.target
                + b" HTTP/1.1\r\nHost: "
                + self.target
                + b"\r\n"
                + login
                + b"\r\n"
            )
            await writer.drain()
            status = _status(await read_head(reader))
            if status != 200:
                raise ConnectionFailedError(f"the proxy {proxy.host} answered {status}")

    async def accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Open the tunnel for the client, or pass on the head of the answer.

        A connection in the clear serves one request: the next may be for another host.
        """
        if self.tunnel:
            client.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            return
        head = await read_head(reader)
        while _status(head) // 100 == 1:
            head = await read_head(reader)
        line, _, rest = head.partition(b"\r\n")
        client.write(line + b"\r\nConnection: close\r\n" + _without(rest, _OWN))


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """The head of a message with its blank line; raises EOFError or ValueError."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise ValueError("the head of the message is too long") from error


def _status(head: bytes) -> int:
    """The status of an answer; raises ValueError when it is none."""
    return int(head.split(b" ", 2)[1][:3])


def _path(target: bytes) -> bytes:
    rest = target.partition(b"://")[2]
    slash = rest.find(b"/")
    query = rest.find(b"?")
    if slash < 0 or 0 <= query < slash:
        return b"/" + (rest[query:] if query >= 0 else b"")
    return rest[slash:]


def _without(headers: bytes, names: tuple[str, ...]) -> bytes:
    """Header lines but those of some names; the blank line stays."""
    kept = [
        line
        for line in headers.split(b"\r\n")
        if line.partition(b":")[0].strip().lower().decode("latin-1") not in names
    ]
    return b"\r\n".join(kept)
