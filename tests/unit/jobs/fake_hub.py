"""A fake Hugging Face hub on loopback, with the endpoints that a download needs."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from typing_extensions import override

COMMIT = "c" * 40


@dataclass
class Hub:
    """The content of the hub and its faults.

    Attributes:
        files: content by path of the one repository `acme/model`, revision `main`.
        token: when set, requests without it are refused.
        stated: content by path that the listing describes in place of the content in `files`.
        bare: the listing states neither sizes nor digests.
        cut: the connection breaks after this many bytes, once for each file.
        requests: method, path and Range header of each request, in order.
    """

    files: dict[str, bytes]
    token: str = ""
    stated: dict[str, bytes] = field(default_factory=dict)
    bare: bool = False
    cut: int = 0
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    cut_files: set[str] = field(default_factory=set)
    url: str = ""

    def gets(self, name: str) -> list[str]:
        """Return the Range headers of the downloads of one file."""
        return [r for m, p, r in self.requests if m == "GET" and p.endswith(f"/{name}")]


def git(data: bytes) -> str:
    """Return the object ID of a blob in git."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serve the hub until the `with` block ends."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: ClassVar[Hub]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing; tests read `Hub.requests`."""

    def _answer(self, *, body: bool) -> None:
        hub = self.hub
        hub.requests.append((self.command, self.path, self.headers.get("Range", "")))
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            self._send(401, b"", {})
            return
        api = re.fullmatch(
            r"/api/models/acme/model(?:/(?:revision|tree)/([^/?]+))?(?:\?.*)?", self.path
        )
        if api:
            self._info(api[1] or "main")
            return
        file = re.fullmatch(r"/acme/model/resolve/([^/]+)/(.+)", self.path)
        if file and file[2] in hub.files:
            self._file(file[2], hub.files[file[2]], body=body)
            return
        self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _info(self, revision: str) -> None:
        if revision not in ("main", COMMIT):
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            return
        files = self.hub.files.items()
        if "/tree/" in self.path:
            tree: Any = [
                {"type": "file", "path": n, "size": len(b), "oid": hashlib.sha1(b).hexdigest()}  # noqa: S324
                for n, b in files
            ]
            self._send(200, json.dumps(tree).encode(), {})
            return
        siblings = [self._sibling(name, data) for name, data in files]
        info = {"id": "acme/model", "sha": COMMIT, "siblings": siblings}
        self._send(200, json.dumps(info).encode(), {})

    def _sibling(self, name: str, data: bytes) -> dict[str, Any]:
        """Describe a file for the listing: as on the real hub, only weights are in Git LFS."""
        if self.hub.bare:
            return {"rfilename": name}
        stated = self.hub.stated.get(name, data)
        entry = {"rfilename": name, "size": len(stated), "blobId": git(stated)}
        if name.endswith(".safetensors"):
            digest = hashlib.sha256(stated).hexdigest()
            lfs = {"size": len(stated), "sha256": digest, "pointerSize": 130}
            return entry | {"blobId": git(b"a pointer"), "lfs": lfs}
        return entry

    def _file(self, name: str, data: bytes, *, body: bool) -> None:
        etag = hashlib.sha256(data).hexdigest()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        start = 0
        span = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if span:
            start = int(span[1])
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        hub = self.hub
        if body and hub.cut and name not in hub.cut_files and len(data) > hub.cut:
            hub.cut_files.add(name)
            self._send(200, data[start:], headers, stop=hub.cut)
            self.close_connection = True
            return
        self._send(206 if span else 200, data[start:], headers, body=body)

    def _send(
        self,
        status: int,
        data: bytes,
        headers: dict[str, str],
        *,
        body: bool = True,
        stop: int | None = None,
    ) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data[:stop])
