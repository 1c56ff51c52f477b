"""The simulated BLS behind Triton's generate extension, with persistent connections."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from unit.bench.simulated import OUTPUTS, TYPES, Simulated


class Server(ThreadingHTTPServer):
    """A server with a thread for each connection; `connections` lists all of them."""

    daemon_threads = True

    def __init__(self, simulated: Simulated) -> None:
        self.simulated = simulated
        self.connections: list[socket.socket] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    @override
    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def close_connections(self) -> None:
        """End every connection."""
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Stop serving and end every connection."""
        self.shutdown()
        self.socket.close()
        self.close_connections()

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: clients may close connections at any time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        name = self.path.split("/")[3]
        if name == "absent":
            self._whole(400, {"error": "Request for unknown model: 'absent'"})
            return
        inputs = ["text_input", *TYPES]
        if name == "ensemble":
            inputs.remove("num_draft_tokens")
        self._whole(
            200,
            {
                "input": [{"name": name} for name in inputs],
                "output": [{"name": name} for name in OUTPUTS],
                "model_transaction_policy": {"decoupled": self.server.simulated.decoupled},
            },
        )

    def do_POST(self) -> None:
        simulated = self.server.simulated
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        given = {**body, "text_input": body["text_input"].encode()}
        admitted = simulated.admitted(given)
        if self.path.endswith("/generate"):
            self._once(admitted)
        elif admitted is None:
            self._begin(200, "text/event-stream")
            self._event({"error": "no more of these"})
            self._chunk(b"")
        else:
            self._begin(200, "text/event-stream")
            for number, drafted, accepted in simulated.rounds(admitted):
                self._event(_outputs(number, drafted, accepted))
            self._chunk(b"")

    def _once(self, given: dict[str, Any] | None) -> None:
        if given is None:
            self._whole(400, {"error": "no more of these"})
            return
        rounds = list(self.server.simulated.rounds(given))
        self._whole(200, _outputs(sum(new for new, _, _ in rounds), *rounds[-1][1:]))

    def _begin(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _whole(self, status: int, value: Any) -> None:
        self._begin(status, "application/json")
        self._chunk(json.dumps(value).encode())
        self._chunk(b"")

    def _event(self, value: Any) -> None:
        self._chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing; tests read the responses."""


def _outputs(new: int, drafted: int, accepted: int) -> dict[str, Any]:
    values = ("x" * new, drafted, accepted, new)
    return {"model_name": "any", **dict(zip(OUTPUTS, values, strict=True))}


@contextmanager
def served_http(simulated: Simulated, context: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Yield the server while it serves; it uses TLS if `context` is given."""
    server = Server(simulated)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    simulated.stop = server.stop
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
        server.server_close()
