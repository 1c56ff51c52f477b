"""A scripted fake of Triton's generate extension over HTTP, on loopback."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

INPUTS = ("text_input", "max_tokens", "stream", "exclude_input_in_output", "stop_words", "seed")


@dataclass
class Script:
    """The responses of the server.

    Attributes:
        events: the JSON objects of the answer, or raw texts.
        status: the HTTP status of the response to a request.
        config: the model's configuration; None means that of a streaming model.
        pause: seconds between events.
        seen: paths, headers and bodies of the requests.
    """

    events: tuple[Any, ...] = ({"text_output": "a"}, {"text_output": "b"})
    status: int = 200
    config: Any = None
    pause: float = 0.0
    seen: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    def configuration(self) -> Any:
        return self.config or {
            "input": [{"name": name} for name in INPUTS],
            "output": [{"name": "text_output"}],
            "model_transaction_policy": {"decoupled": True},
        }


@contextmanager
def served(script: Script, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve the endpoint and yield its address; use TLS if a context is given."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._begin(200, None)
            self.wfile.write(json.dumps(script.configuration()).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self._begin(script.status, json.loads(body))
            # A client may close the connection before the last event.
            with suppress(BrokenPipeError, ConnectionResetError):
                self._events()

        def _events(self) -> None:
            for event in script.events:
                text = event if isinstance(event, str) else json.dumps(event)
                self.wfile.write(b"data: " + text.encode() + b"\n\n")
                self.wfile.flush()
                time.sleep(script.pause)

        def _begin(self, status: int, body: Any) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            script.seen.append((self.path, headers, body))
            self.send_response(status)
            self.end_headers()

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing; tests read `seen`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
