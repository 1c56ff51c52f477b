"""Fake object stores, registries and catalogues on loopback.

Each refuses requests without credentials, serves byte ranges, breaks connections on demand and
records its requests.
"""

import base64
import hashlib
import json
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from typing_extensions import override


@dataclass
class Server(ABC):
    """The common base of all fake servers.

    Attributes:
        files: content by key.
        password: what the Authorization header must contain; empty allows anonymous requests.
        cut: the connection breaks after this many bytes of a file.
        cuts: how often the connection breaks for each file.
        ranges: whether the server supports byte ranges.
        requests: method, path and Range header of each request.
    """

    files: dict[str, bytes]
    password: str = ""
    cut: int = 0
    cuts: int = 1
    ranges: bool = True
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    broken: dict[str, int] = field(default_factory=dict)
    url: str = ""

    @property
    def host(self) -> str:
        return self.url.partition("://")[2]

    def gets(self, end: str) -> list[str]:
        """Return the Range headers of the requests for one file."""
        return [
            span for _, path, span in self.requests if unquote(urlsplit(path).path).endswith(end)
        ]

    @abstractmethod
    def answer(self, handler: "Handler") -> None:
        """Answer one request."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: ClassVar[Server]

    def do_GET(self) -> None:
        state = self.server_state
        state.requests.append((self.command, self.path, self.headers.get("Range", "")))
        state.answer(self)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing; tests read `Server.requests`."""

    @property
    def authorization(self) -> str:
        return str(self.headers.get("Authorization", ""))

    def respond(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def respond_json(self, value: Any, **headers: str) -> None:
        self.respond(200, json.dumps(value).encode(), **headers)

    def file(self, name: str, data: bytes) -> None:
        """Send a file or the requested range of it, truncated if the test sets `cut`."""
        state = self.server_state
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start = int(span[1]) if span and state.ranges else 0
        rest = data[start:]
        self.send_response(206 if span and state.ranges else 200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()[:32]}"')
        self.send_header("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
        if span and state.ranges:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if 0 < state.cut < len(rest) and state.broken.get(name, 0) < state.cuts:
            state.broken[name] = state.broken.get(name, 0) + 1
            rest = rest[: state.cut]
            self.close_connection = True
        self.wfile.write(rest)


S = TypeVar("S", bound=Server)


@contextmanager
def serving(state: S, address: str = "127.0.0.1") -> Iterator[S]:
    """Serve until the `with` block ends."""
    handler = type("Served", (Handler,), {"server_state": state})
    server = ThreadingHTTPServer((address, 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    state.url = f"http://{address}:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Store(Server):
    """An object store that lists by prefix and delimiter in pages. Keys are `bucket/key`."""

    page = 2

    @override
    def answer(self, handler: Handler) -> None:
        if self.password and self.password not in handler.authorization:
            handler.respond(403, b"<Error><Code>AccessDenied</Code></Error>")
            return
        url = urlsplit(handler.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        if not any(name.startswith(f"{bucket}/") for name in self.files):
            handler.respond(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        elif not key:
            handler.respond(200, self._list(bucket, parse_qs(url.query)), Content_Type="text/xml")
        elif f"{bucket}/{key}" in self.files:
            handler.file(key, self.files[f"{bucket}/{key}"])
        else:
            handler.respond(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def _list(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        start = int(query.get("continuation-token", ["0"])[0])
        keys = [k.partition("/")[2] for k in sorted(self.files) if k.startswith(f"{bucket}/")]
        flat = [k for k in keys if k.startswith(prefix) and "/" not in k[len(prefix) :]]
        shown, more = flat[start : start + self.page], start + self.page < len(flat)
        contents = "".join(self._entry(bucket, key) for key in shown)
        token = f"<NextContinuationToken>{start + self.page}</NextContinuationToken>"
        return (
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"{token if more else ''}{contents}</ListBucketResult>"
        ).encode()

    def _entry(self, bucket: str, key: str) -> str:
        data = self.files[f"{bucket}/{key}"]
        return (
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
            "<LastModified>2026-01-02T03:04:05.000Z</LastModified>"
            f'<ETag>"{hashlib.sha256(data).hexdigest()[:32]}"</ETag></Contents>'
        )


@dataclass
class Registry(Server):
    """An OCI registry with the repository `acme/model`; `password` belongs to user `me`.

    Attributes:
        layers: the layers of the manifest `v1`; their blobs are in `files` by digest.
        basic: whether the registry requires basic authentication instead of a token.
        tokens: number of issued tokens; each is valid for `lifetime` requests.
        index: whether `v1` is an index that refers to the manifest.
    """

    layers: list[dict[str, Any]] = field(default_factory=list)
    basic: bool = False
    tokens: int = 0
    lifetime: int = 1000
    used: dict[str, int] = field(default_factory=dict)
    index: bool = False

    def add(self, data: bytes, **layer: Any) -> None:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.files[digest] = data
        given = {"mediaType": "application/octet-stream", "digest": digest, "size": len(data)}
        self.layers.append(given | layer)

    def title(self, name: str, data: bytes) -> None:
        self.add(data, annotations={"org.opencontainers.image.title": name})

    @property
    def manifest(self) -> bytes:
        return json.dumps({"schemaVersion": 2, "layers": self.layers}).encode()

    @override
    def answer(self, handler: Handler) -> None:
        if handler.path.startswith("/token"):
            self._token(handler)
        elif not self._allowed(handler):
            challenge = 'Basic realm="r"' if self.basic else self._bearer()
            handler.respond(401, WWW_Authenticate=challenge)
        else:
            self._content(handler, handler.path.removeprefix("/v2/acme/model/"))

    def _bearer(self) -> str:
        return f'Bearer realm="{self.url}/token",service="r",scope="repository:acme/model:pull"'

    def _token(self, handler: Handler) -> None:
        basic = base64.b64encode(f"me:{self.password}".encode()).decode()
        if self.password and handler.authorization != f"Basic {basic}":
            handler.respond(401)
            return
        self.tokens += 1
        self.used[f"Bearer token-{self.tokens}"] = 0
        handler.respond_json({"token": f"token-{self.tokens}"})

    def _allowed(self, handler: Handler) -> bool:
        if self.basic:
            basic = base64.b64encode(f"me:{self.password}".encode()).decode()
            return handler.authorization == f"Basic {basic}"
        token = handler.authorization
        self.used[token] = self.used.get(token, self.lifetime) + 1
        return self.used[token] <= self.lifetime

    def _content(self, handler: Handler, path: str) -> None:
        digest = f"sha256:{hashlib.sha256(self.manifest).hexdigest()}"
        kind = "application/vnd.oci.image.manifest.v1+json"
        if path == "manifests/v1" and self.index:
            arm64 = {"digest": "sha256:" + "0" * 64, "platform": {"architecture": "arm64"}}
            amd64 = {"os": "linux", "architecture": "amd64"}
            entries = [arm64, {"digest": digest, "platform": amd64}]
            handler.respond_json({"manifests": entries})
        elif path in ("manifests/v1", f"manifests/{digest}"):
            handler.respond(200, self.manifest, Content_Type=kind)
        elif path.removeprefix("blobs/") in self.files:
            handler.file(path, self.files[path.removeprefix("blobs/")])
        else:
            handler.respond(404, b"{}")


class Catalogue(Server):
    """NGC with one model `acme/lab/model`, version 1; `password` is the API key."""

    page = 2

    @override
    def answer(self, handler: Handler) -> None:
        url = urlsplit(handler.path)
        if url.path == "/token":
            basic = base64.b64encode(f"$oauthtoken:{self.password}".encode()).decode()
            good = handler.authorization == f"Basic {basic}"
            handler.respond_json({"token": "short"}) if good else handler.respond(401)
            return
        closed, base = bool(self.password), "/v2/models/acme/lab/model/versions/1/files"
        if closed:
            base = "/v2/org/acme/team/lab/models/model/versions/1/files"
            expected = "short" if not self.password.startswith("nvapi-") else self.password
            if handler.authorization != f"Bearer {expected}":
                handler.respond(401)
                return
        name = unquote(url.path.removeprefix(f"{base}/"))
        if url.path == base:
            handler.respond_json(self._list(int(parse_qs(url.query)["page-number"][0])))
        elif url.path.startswith(base) and name in self.files:
            handler.file(name, self.files[name])
        else:
            handler.respond(404, quote(handler.path).encode())

    def _list(self, page: int) -> dict[str, Any]:
        names = sorted(self.files)
        shown = names[page * self.page : (page + 1) * self.page]
        return {
            "modelFiles": [{"path": n, "sizeInBytes": len(self.files[n])} for n in shown],
            "paginationInfo": {"totalPages": -(-len(names) // self.page)},
        }
