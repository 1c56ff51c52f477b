"""The probe of a path on localhost: which answers pass, and for how long it tries."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from typing_extensions import override

from specdec.payload.serving import health


@contextmanager
def answering(statuses: Sequence[int]) -> Iterator[int]:
    """The port of a server that gives these statuses, and the last one for ever."""
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(left.pop(0) if len(left) > 1 else left[0])
            self.end_headers()

        @override
        def log_message(self, *_: object) -> None:
            """Keep the output of tests short."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_success_passes() -> None:
    with answering([200]) as port:
        assert health.check(port, "/health", 1) == ""


def test_it_tries_until_the_path_answers() -> None:
    with answering([500, 503, 200]) as port:
        assert health.check(port, "/health_generate", 30) == ""


def test_the_last_failure_is_the_message() -> None:
    with answering([500, 503]) as port:
        assert health.check(port, "/health", 0.6) == "/health answered with status 503"


def test_a_server_that_is_silent_or_absent_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert health.check(port, "/health", 0.2) == "/health did not answer within 0 s"
    assert health.check(port, "/health", 0.2) == "/health did not answer (ConnectionRefusedError)"
