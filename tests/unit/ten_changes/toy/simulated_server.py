"""A simulation of the toy server, for the Jobs and probes that the operator starts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from typing_extensions import override


class Server(ThreadingHTTPServer):
    """It guesses two pieces for each of an answer, and half of them are right."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.guessed = 0

    @property
    def address(self) -> str:
        """Return `host:port`."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._reply(
            "# TYPE toy_guessed counter\n"
            f"toy_guessed_total {self.server.guessed}\n"
            "# TYPE toy_right counter\n"
            f"toy_right_total {self.server.guessed // 2}\n"
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/toy/continue", self.path
        self.server.guessed += 2 * body["count"]
        self._reply(json.dumps({"pieces": [body["after"].split()[0]] * body["count"]}))

    def _reply(self, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    @override
    def log_message(self, *_: object) -> None:
        """Keep the output of tests short."""


@contextmanager
def running() -> Iterator[Server]:
    """Run a server in a thread."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
