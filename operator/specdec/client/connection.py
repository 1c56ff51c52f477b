"""The address of a server with its TLS files and headers, validated before a request is sent.

Every client in this package takes a `Connection`. Header values are secrets: they are never
printed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from specdec.client.errors import BadRequestError

CONNECT_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}
# gRPC errors of a server that accepts a connection, but does not speak gRPC or refuses this TLS.
_PROTOCOL_ERRORS = ("Socket closed", "Connection reset", "Broken pipe", "andshake", "erification")
# Header names in gRPC are lower case, and limited to these characters.
_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_|~-]+")


@dataclass(frozen=True)
class Connection:
    """One endpoint of a server.

    Attributes:
        url: `host:port`, of Triton's gRPC endpoint unless the client uses HTTP.
        timeout: maximum seconds for one answer.
        tls: use TLS. The three files are PEM; without `root_certificates` the system's CAs apply.
        headers: sent with every request; never printed, because they may contain tokens.
        path: of an OpenAI endpoint, like /v1; empty for Triton.

    Raises:
        BadRequestError: invalid host:port, a missing file, or a file although `tls` is false.
    """

    url: str
    timeout: float = 120.0
    tls: bool = False
    root_certificates: str | None = None
    private_key: str | None = None
    certificate_chain: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    path: str = ""

    def __post_init__(self) -> None:
        host, _, port = self.url.rpartition(":")
        if not host or not port.isdigit() or "/" in host:
            raise BadRequestError(
                f"url is {self.url!r}; give host:port, for example localhost:8001"
            )
        if self.timeout <= 0:
            raise BadRequestError(f"timeout is {self.timeout:g}; give seconds above 0")
        if (self.private_key is None) != (self.certificate_chain is None):
            raise BadRequestError("a client certificate needs its key; give both files or neither")
        for file in self.files():
            if not self.tls:
                raise BadRequestError(f"certificate {file} is given without TLS; add --tls")
            if not Path(file).is_file():
                raise BadRequestError(f"certificate {file} is no file; name a PEM file")

    def unreachable_message(self, details: str) -> str:
        """The message for a failed gRPC connection; `details` is the error text of the library."""
        _, separator, cause = details.rpartition("last error: ")
        # Without that text, an established connection broke: the server stopped during the call.
        if not separator or not any(error in cause for error in _PROTOCOL_ERRORS):
            return (
                f"connection to {self.url} failed; check the address, "
                "and that the server is ready and port 8001 is forwarded"
            )
        if not self.tls:
            return (
                f"{self.url} closed the connection ({cause}); check that it is a gRPC port, and "
                "add --tls if the server requires TLS"
            )
        return (
            f"the TLS connection to {self.url} failed ({cause}); check the CA (--ca), the "
            "client's certificate (--cert), and the names in the server's certificate"
        )

    def files(self) -> list[str]:
        """The PEM files of this connection."""
        files = (self.root_certificates, self.private_key, self.certificate_chain)
        return [file for file in files if file is not None]

    def certificate(self, file: str | None) -> bytes | None:
        """The content of a PEM file, None without one."""
        return None if file is None else Path(file).read_bytes()


def of_url(url: str, *, tls: bool = False, **options: Any) -> Connection:
    """The connection to `host:port` of Triton, or to the base URL of an OpenAI endpoint.

    Args:
        url: `host:port`, or `http://host:port/v1`; https implies TLS.
        tls: use TLS.
        options: see `Connection`.

    Raises:
        BadRequestError: the URL has neither form.
    """
    if "://" not in url:
        return Connection(url, tls=tls, **options)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        port, parts = None, urlsplit("")
    path = parts.path.rstrip("/")
    if parts.scheme not in _PORTS or not parts.hostname or not path or parts.query:
        raise BadRequestError(
            f"url is {url!r}; give host:port of Triton, or the base URL of an OpenAI endpoint, "
            "for example http://localhost:9000/v1"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    tls = tls or parts.scheme == "https"
    return Connection(f"{host}:{port or _PORTS[parts.scheme]}", tls=tls, path=path, **options)


def headers(lines: Iterable[str]) -> dict[str, str]:
    """Parse `name: value` lines.

    Raises:
        BadRequestError: a line without a colon or with an invalid name. The message does not quote
            values, because they are secrets.
    """
    result = {}
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        if not colon or not _HEADER.fullmatch(name) or not value.isprintable():
            raise BadRequestError(f"header {number} is no 'name: value'; write one per --header")
        result[name] = value
    return result
