"""Where a server is and how to reach it, checked before anything is sent."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specdec.client.errors import BadRequestError

CONNECT_SECONDS = 5.0
# What gRPC says of somebody who is there and does not speak as the client does.
_AT_ODDS = ("Socket closed", "Connection reset", "Broken pipe", "andshake", "erification")
# gRPC takes lower case alone; no other character may stand in a header's name.
_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_|~-]+")


@dataclass(frozen=True)
class Connection:
    """One endpoint of a server.

    Attributes:
        url: `host:port`, of Triton's gRPC endpoint unless said otherwise.
        timeout: seconds one answer may take.
        tls: encrypt; the three files are PEM, and without `root_certificates` the system's count.
        headers: sent with every request; never printed, because they carry tokens.

    Raises:
        BadRequestError: no host:port, a file that is not there, a header that cannot be sent.
    """

    url: str
    timeout: float = 120.0
    tls: bool = False
    root_certificates: str | None = None
    private_key: str | None = None
    certificate_chain: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

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

    def unanswered(self, words: str) -> str:
        """Why a call over gRPC found nobody; `words` are the library's own."""
        _, told, last = words.rpartition("last error: ")
        # A call that is cut says so without that: its server was there, and went away.
        if not told or not any(sign in last for sign in _AT_ODDS):
            return (
                f"nobody answers at {self.url}; check the address, "
                "and that the server is ready and port 8001 is forwarded"
            )
        if not self.tls:
            return (
                f"{self.url} hangs up ({last}); check that it is a gRPC port, and ask with --tls "
                "if the server wants TLS"
            )
        return (
            f"no encrypted connection with {self.url} ({last}); check whom the client trusts "
            "(--ca), its own certificate (--cert), and the names in the server's"
        )

    def files(self) -> list[str]:
        """The PEM files that are named."""
        named = (self.root_certificates, self.private_key, self.certificate_chain)
        return [file for file in named if file is not None]

    def certificate(self, file: str | None) -> bytes | None:
        """The content of a PEM file, None without one."""
        return None if file is None else Path(file).read_bytes()


def headers(lines: Iterable[str]) -> dict[str, str]:
    """`name: value` lines as a mapping.

    Raises:
        BadRequestError: a line without a colon, or with a name that HTTP does not take. Values
            are secrets and not repeated.
    """
    found = {}
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        if not colon or not _HEADER.fullmatch(name) or not value.isprintable():
            raise BadRequestError(f"header {number} is no 'name: value'; write one per --header")
        found[name] = value
    return found
