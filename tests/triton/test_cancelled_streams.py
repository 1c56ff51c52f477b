"""A fault of this tritonserver: a cancelled stream can crash it, or block all of its streams."""

import queue
import signal
import threading
import time

import pytest

from cluster.processes import until
from specdec.images.serving import streams
from specdec.triton.repository import RepositoryPlan
from support.triton_client import RefusedError, stream
from support.triton_server import Server
from triton.conftest import Serve

_CLIENTS = 8
_BLOCKED_SECONDS = 15.0
_FIXED = (
    "cancelled streams neither crash nor block this tritonserver: its faults are fixed. Remove "
    "this test, and correct docs/troubleshooting.md and docs/security.md"
)


class Clients:
    """Clients that cancel each stream after its first response, until the server ends."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._last_response = time.monotonic()
        for _ in range(_CLIENTS):
            threading.Thread(target=self._run, daemon=True).start()

    def blocked(self) -> bool:
        """Return whether no client has received a response for some time."""
        return time.monotonic() - self._last_response > _BLOCKED_SECONDS

    def _run(self) -> None:
        values = {"text_input": "def f(", "max_tokens": 48, "stream": True, "end_id": -1}
        while self._server.status() is None:
            try:
                with stream(self._server.url, "tensorrt_llm_bls", **values) as parts:
                    next(iter(parts))
                    self._last_response = time.monotonic()
                    parts.cancel()
            except (RefusedError, queue.Empty):
                return


@pytest.mark.nightly
def test_cancelled_streams_crash_or_block_this_release_of_triton(
    serve: Serve, draft_target_plan: RepositoryPlan
) -> None:
    """This test fails with the first fixed tritonserver; then update the documentation.

    Triton's own test variable delays its responses by some milliseconds. Without this delay, it
    takes thousands of cancelled streams.
    """
    delay = {"TRITONSERVER_DELAY_GRPC_RESPONSE": "20"}
    with serve(draft_target_plan, env=delay) as server:
        clients = Clients(server)
        until(lambda: server.status() is not None or clients.blocked(), lambda: _FIXED)
        crashed = server.status() in (-signal.SIGSEGV, -signal.SIGABRT)
        blocked = server.metric("specdec_requests_in_flight") > 0 if not crashed else False
        assert crashed or (blocked and streams.problem(server.grpc_port, 10.0))
