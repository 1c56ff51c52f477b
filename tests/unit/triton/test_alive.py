"""The liveness probe fails when the process of a model has died."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from cluster.processes import until
from specdec.payload.serving import alive


@contextmanager
def server(folder: Path, port: int) -> Iterator[int]:
    """Run a parent that starts a model's process as Triton does and never waits for its end."""
    stub = folder / "triton_python_backend_stub"
    stub.symlink_to(sys.executable)
    model = folder / "tensorrt_llm_draft" / "1" / "model.py"
    model.parent.mkdir(parents=True)
    model.write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    program = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([{str(stub)!r}, {str(model)!r}, 'x'], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    argv = [sys.executable, "-c", program, f"--http-port={port}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            yield child
        finally:
            os.kill(child, signal.SIGKILL)
            parent.kill()


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
        with server(tmp_path, port) as child:
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
