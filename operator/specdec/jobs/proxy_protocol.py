"""The HTTP proxy protocol of the egress proxy, towards clients and towards upstream proxies.

`egress_proxy` parses each client request into a `ProxyRequest`, and asks `UpstreamProxies` for the
proxy that the pod's environment names for a host. Connections without TLS serve one request each.
"""

import asyncio
import base64
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

_PORTS = {"http": 80, "https": 443}
# Hop-by-hop headers, which are not forwarded.
_HOP_BY_HOP = ("connection", "proxy-connection", "proxy-authorization", "keep-alive")


class ConnectionFailedError(Exception):
    """No connection could be made; the message never quotes a server."""


@dataclass(frozen=True)
class Proxy:
    """An upstream proxy; `credentials` is `user:password` or empty."""

    host: str
    port: int
    tls: bool
    credentials: str

    @property
    def header(self) -> bytes:
        """The Proxy-Authorization header line, empty without credentials."""
        if not self.credentials:
            return b""
        basic = base64.b64encode(self.credentials.encode())
        return b"Proxy-Authorization: Basic " + basic + b"\r\n"


@dataclass(frozen=True)
class UpstreamProxies:
    """The pod's HTTPS_PROXY, HTTP_PROXY and NO_PROXY, by scheme in lower case."""

    proxies: Mapping[str, str]

    @classmethod
    def from_environment(cls) -> "UpstreamProxies":
        """Read the environment variables."""
        return cls(urllib.request.getproxies_environment())

    def proxy(self, scheme: str, host: str) -> Proxy | None:
        """The upstream proxy for a host; None for a direct connection.

        Raises:
            ConnectionFailedError: the variable holds no valid proxy address.
        """
        address = self.proxies.get(scheme) or self.proxies.get("all")
        if not address or urllib.request.proxy_bypass(host, self.proxies):
            return None
        try:
            url = urlsplit(address if "://" in address else f"http://{address}")
            port = url.port or _PORTS[url.scheme]
        except (ValueError, KeyError):
            raise ConnectionFailedError("the proxy's address cannot be read") from None
        credentials = ":".join(unquote(part) for part in (url.username, url.password) if part)
        return Proxy(url.hostname or "", port, url.scheme == "https", credentials)

    @staticmethod
    def context() -> ssl.SSLContext:
        """The TLS context for a proxy with TLS: CAs of SSL_CERT_FILE, or of the image."""
        return ssl.create_default_context()


@dataclass(frozen=True)
class ProxyRequest:
    """A client's request to the proxy: a tunnel (CONNECT), or a plain HTTP request."""

    method: bytes
    scheme: str
    host: str
    port: int
    target: bytes
    headers: bytes

    @classmethod
    def parse(cls, head: bytes) -> "ProxyRequest":
        """Parse the head of a request; raises ValueError if it is no valid proxy request."""
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
        """Whether the request opens a tunnel, whose bytes the proxy does not interpret."""
        return self.method == b"CONNECT"

    async def send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, proxy: Proxy | None
    ) -> None:
        """Forward the request, or make the upstream proxy open the tunnel.

        Raises:
            ConnectionFailedError: the upstream proxy refuses the tunnel.
        """
        authorization = proxy.header if proxy is not None else b""
        if not self.tunnel:
            target = self.target if proxy is not None else _path(self.target)
            forwarded = _without(self.headers, _HOP_BY_HOP)
            line = self.method + b" " + target + b" HTTP/1.1\r\n"
            writer.write(line + b"Connection: close\r\n" + authorization + forwarded)
        elif proxy is not None:
            writer.write(
                b"CONNECT "
                + self.target
                + b" HTTP/1.1\r\nHost: "
                + self.target
                + b"\r\n"
                + authorization
                + b"\r\n"
            )
            await writer.drain()
            status = _status(await read_head(reader))
            if status != 200:
                raise ConnectionFailedError(f"the proxy {proxy.host} answered {status}")

    async def accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Confirm the tunnel to the client, or forward the head of the response.

        A plain connection serves one request, because the next one may be for another host.
        """
        if self.tunnel:
            client.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            return
        head = await read_head(reader)
        while _status(head) // 100 == 1:
            head = await read_head(reader)
        line, _, rest = head.partition(b"\r\n")
        client.write(line + b"\r\nConnection: close\r\n" + _without(rest, _HOP_BY_HOP))


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """The head of an HTTP message with its blank line; raises EOFError or ValueError."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise ValueError("the head of the message is too long") from error


def _status(head: bytes) -> int:
    """The status of a response; raises ValueError if there is none."""
    return int(head.split(b" ", 2)[1][:3])


def _path(target: bytes) -> bytes:
    rest = target.partition(b"://")[2]
    slash = rest.find(b"/")
    query = rest.find(b"?")
    if slash < 0 or 0 <= query < slash:
        return b"/" + (rest[query:] if query >= 0 else b"")
    return rest[slash:]


def _without(headers: bytes, names: tuple[str, ...]) -> bytes:
    """The header lines except those with the given names; the blank line stays."""
    kept = [
        line
        for line in headers.split(b"\r\n")
        if line.partition(b":")[0].strip().lower().decode("latin-1") not in names
    ]
    return b"\r\n".join(kept)
