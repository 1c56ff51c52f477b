"""An API server that serves reads from a table, and a kubeconfig for it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from typing_extensions import override

Json = dict[str, Any]
MODELS = "/apis/specdec.dev/v1alpha1"


@dataclass
class Api:
    """The table of responses, and the requests so far.

    Attributes:
        objects: responses by path: an object, a list of items, a text, or a function of the label
            selector that returns one of these.
        errors: HTTP status and message by path.
        seen: path and label selector of every request.
    """

    objects: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, tuple[int, str]] = field(default_factory=dict)
    seen: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)

    def write(self, method: str, address: str, body: Json) -> tuple[int, bytes]:
        """Return the response to a PATCH, POST or DELETE: 405, as the table only has reads."""
        message = f"{method} {address} is not served"
        return 405, json.dumps({"kind": "Status", "message": message}).encode()

    def respond(self, address: str) -> tuple[int, bytes]:
        parts = urlsplit(address)
        selector = parse_qs(parts.query).get("labelSelector", [""])[0]
        self.seen.append((parts.path, selector))
        if parts.path in self.errors:
            code, message = self.errors[parts.path]
            return code, json.dumps({"kind": "Status", "message": message}).encode()
        value = self.objects.get(parts.path)
        if callable(value):
            value = value(selector)
        if value is None:
            return 404, json.dumps({"kind": "Status", "message": "not found"}).encode()
        if isinstance(value, str):
            return 200, value.encode()
        body = {"items": value, "metadata": {}} if isinstance(value, list) else value
        return 200, json.dumps(body).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Clients connect many times at once; a connection beyond the queue waits for a second.
    request_queue_size = 128


@contextmanager
def serving(api: Api, host: str = "127.0.0.1") -> Iterator[str]:
    """Run a server for the table; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            api.tokens.add(self.headers.get("Authorization", ""))
            status, body = api.respond(self.path)
            # A client may close the connection after the first error.
            with suppress(ConnectionError):
                self.send(status, body)

        def do_PATCH(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            given = json.loads(self.rfile.read(length) or b"{}")
            with suppress(ConnectionError):
                self.send(*api.write(self.command, self.path, given))

        do_POST = do_DELETE = do_PATCH  # noqa: N815 - names of http.server

        def send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            kind = "application/json" if body[:1] == b"{" else "text/plain"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Do not log requests."""

    server = _Server((host, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def kubeconfig(file: Path, server: str, namespace: str | None = "lab", **user: Any) -> Path:
    """Write a kubeconfig with the single context `here`; `user` replaces its user's token."""
    context = {"cluster": "one", "user": "me"} | ({"namespace": namespace} if namespace else {})
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "one", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": user or {"token": "hush"}}],
    }
    file.write_text(yaml.safe_dump(body))
    return file


def pod(name: str, component: str, phase: str = "Running", **changes: Any) -> Json:
    """Return a pod of the resource `pair`; a running pod is ready."""
    labels = {
        "app.kubernetes.io/managed-by": "specdec",
        "app.kubernetes.io/component": component,
        "specdec.dev/model": "pair",
        **changes.pop("labels", {}),
    }
    ready = "True" if phase == "Running" else "False"
    return {
        "metadata": {
            "name": name,
            "namespace": "lab",
            "uid": f"uid-{name}",
            "labels": labels,
            "creationTimestamp": "2026-01-02T03:00:00Z",
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}], **changes},
    }


def proxied(pod: str) -> str:
    """Return the path of the API server's proxy for a pod's metrics."""
    return f"/api/v1/namespaces/lab/pods/{pod}:8002/proxy/metrics"


def pages(*texts: str) -> Callable[[str], str]:
    """Return a function that gives one text for each call, and repeats the last text."""
    remaining = list(texts)
    return lambda _: remaining.pop(0) if len(remaining) > 1 else remaining[0]
