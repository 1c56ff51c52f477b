"""The liveness probe fails when the process of a model has died."""

import http.server
import os
import signal
import threading
from pathlib import Path
from typing import Any

from typing_extensions import override

from cluster.processes import until
from specdec.images.serving import alive
from unit.triton import fake_models


class _Live(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/v2/health/live" else 404)
        self.end_headers()

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def test_a_model_s_process_counts_as_dead_before_its_parent_waits_for_it(tmp_path: Path) -> None:
    listener = http.server.HTTPServer(("127.0.0.1", 0), _Live)
    threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True).start()
    port = int(listener.server_address[1])
    try:
        with fake_models.server(tmp_path, port) as child:
            assert alive.check(port, 60.0) is None
            os.kill(child, signal.SIGKILL)
            until(lambda: alive.check(port, 60.0) is not None, lambda: "the process is not dead")
            assert "has died" in str(alive.check(port, 60.0))
            # A dead process of another server does not count.
            assert list(alive.dead(port + 1)) == []
    finally:
        listener.shutdown()
        listener.server_close()
    assert "does not answer" in str(alive.check(port, 60.0))
