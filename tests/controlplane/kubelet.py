"""A Node with a simulated kubelet, which only serves logs, for an API server without nodes."""

import json
import secrets
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from typing_extensions import override

from cluster import ControlPlane
from support import certificates

Object = dict[str, Any]
TIME = "2026-01-02T03:04:05.000000000Z"


class LogNode:
    """A node for the pods of one namespace.

    Attributes:
        name: name of the node.
        logs: the log of each container, by pod and container name, without timestamps. A request
            that follows a log ends at the end of this text.
    """

    def __init__(self, plane: ControlPlane, namespace: str, name: str) -> None:
        self.logs: dict[tuple[str, str], str] = {}
        self._plane, self._namespace, self.name = plane, namespace, name

    def run(self, pod: str, component: str, logs: dict[str, str], **environment: str) -> None:
        """Create a pod of the resource `pair`, and report its containers as running."""
        labels = {
            "app.kubernetes.io/managed-by": "specdec",
            "app.kubernetes.io/component": component,
            "specdec.dev/model": "pair",
        }
        variables = [{"name": key, "value": value} for key, value in environment.items()]
        containers = [
            {"name": name, "image": "example.com/server", "env": variables} for name in logs
        ]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "labels": labels},
            "spec": {"nodeName": self.name, "containers": containers},
        }
        self._kubectl("create", "-f", "-", stdin=yaml.safe_dump(body))
        self.logs |= {(pod, name): text for name, text in logs.items()}
        statuses = [
            {
                "name": name,
                "image": "example.com/server",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
            }
            for name in logs
        ]
        status = {"status": {"phase": "Running", "containerStatuses": statuses}}
        change = ("--subresource=status", "--type=merge", "-p", json.dumps(status))
        self._kubectl("patch", "pod", pod, *change)

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> None:
        self._plane.kubectl("-n", self._namespace, *arguments, stdin=stdin)


@contextmanager
def log_node(plane: ControlPlane, namespace: str, folder: Path) -> Iterator[LogNode]:
    """Yield a node with such a kubelet; the context removes both at its end."""
    node = LogNode(plane, namespace, f"logs-{secrets.token_hex(4)}")
    with _serving(node, folder) as port:
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name},
            "spec": {"unschedulable": True},
        }
        plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump(body))
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        endpoints = {"kubeletEndpoint": {"Port": port}}
        status = {"status": {"addresses": addresses, "daemonEndpoints": endpoints}}
        change = ("--subresource=status", "--type=merge", "-p", json.dumps(status))
        plane.kubectl("patch", "node", node.name, *change)
        try:
            yield node
        finally:
            plane.kubectl("delete", "node", node.name)


@contextmanager
def _serving(node: LogNode, folder: Path) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            _, kind, _, pod, container = address.path.split("/")
            text = node.logs.get((pod, container)) if kind == "containerLogs" else None
            query = parse_qs(address.query)
            if query.get("previous") or text is None:
                return self.answer(400, "no such container")
            times = f"{TIME} " if query.get("timestamps") else ""
            return self.answer(200, "".join(f"{times}{line}\n" for line in text.splitlines()))

        def answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Do not log requests."""

    pair = certificates.make(folder).server
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
