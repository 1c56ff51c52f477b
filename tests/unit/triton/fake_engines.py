"""A fake of Triton's HTTP endpoints for tests of the probes."""

import http.server
import json
import threading
from typing import Any

from typing_extensions import override

from specdec.images.serving import engines
from specdec.images.serving.engines import Plan
from specdec.servers.bls.serving import TOKEN

TARGET, DRAFT = "tensorrt_llm", "tensorrt_llm_draft"
PATIENCE = 1000.0


class Server(http.server.ThreadingHTTPServer):
    """A server of Triton's HTTP endpoints; tests set the answers of its engines.

    Attributes:
        ready: whether it reports itself as ready.
        answers: the answer of each engine; None holds a request until the test ends.
        page: the lines of its metrics.
        requests: the engine and the key of each request, in the order of the requests.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ready = True
        token = {"output_ids": [1, 7]}
        self.answers: dict[str, Any] = {TARGET: token, DRAFT: token}
        self.page: list[str] = []
        self.requests: list[tuple[str, str | None]] = []
        self.closing = threading.Event()

    def plan(self, **changes: Any) -> Plan:
        """Return the plan of a probe of this server."""
        fields: dict[str, Any] = {
            "engines": (TARGET, DRAFT),
            "seconds": 2.0,
            "patience": PATIENCE,
            "request": TOKEN.request,
            "output": TOKEN.output,
        } | changes
        return Plan(http=self.server_port, metrics=self.server_port, **fields)

    def requested_engines(self) -> list[str]:
        """Return the engines that got a request for a token since the last call."""
        names, self.requests = [name for name, _ in self.requests], []
        return names


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._reply(200, "\n".join(self.server.page))
        else:
            self._reply(200 if self.server.ready else 400, "")

    def do_POST(self) -> None:
        assert json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input_ids"]
        engine = self.path.split("/")[3]
        self.server.requests.append((engine, self.headers[engines.HEADER]))
        answer = self.server.answers[engine]
        if answer is None:
            self.server.closing.wait()
        else:
            self._reply(200 if "output_ids" in answer else 400, json.dumps(answer))

    def _reply(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
