"""The preStop hook of a server: it finishes accepted requests before the server gets SIGTERM.

After SIGTERM a server refuses every call. That includes the calls of its own BLS for a request in
flight, the next step of an ensemble, and calls over existing connections. Therefore the hook waits
three times: until endpoints no longer list the pod, until the last client has closed its
connection, and until no model has work. gRPC connections end by themselves: at a maximum age the
server makes the client reconnect, and the Service routes it to another pod. HTTP connections have
no such limit, so the wait for connections is bounded.

If a model's process has died, the server refuses requests. The pod has left its Service, because
its readiness probe has failed, so the hook waits only until no model has work. Clients that are
still connected then connect anew, to another pod. Calls to the dead process never end and count as
work, so the hook waits for work only while a counter grows.

With several ranks, mpirun is the container's first process. On SIGTERM it passes the signal on and
kills its ranks shortly after, which would cut the server's own drain. So the hook sends SIGTERM to
rank 0 first. When rank 0 ends, the other ranks end by themselves, and mpirun after them.

Arguments: seconds to go on serving while endpoints are removed, seconds for connections to end,
seconds for all that follows, the port of the metrics (0 if the end of the connections is the end
of all requests), the ports of clients separated by commas, and with several ranks the argument
that identifies the server of rank 0. A server that has already ended counts as drained.
"""

import http.client
import importlib
import math
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

_POLL = 0.2
# Clients that connect for each request have no connection open between requests.
_QUIET = 2.0
# A request may be between two models, or begun and not counted yet.
_BETWEEN = 0.5
# An engine of TensorRT-LLM reports at the end of a step, and keeps its last report when it idles.
_STEP = 10.0
# Queued and running requests of the BLS, of Triton's queues, of a Reference engine and of vLLM.
_WORK = (
    "specdec_requests_in_flight{",
    "specdec_engine_requests{",
    "nv_inference_pending_request_count{",
    "vllm:num_requests_running{",
    "vllm:num_requests_waiting{",
)
# Counters that change whenever a model begins or ends a request, or an engine runs a step.
_PROGRESS = (
    "specdec_engine_steps_total{",
    "nv_inference_request_success{",
    "nv_inference_request_failure{",
    "nv_inference_exec_count{",
    "nv_trt_llm_general_metrics{",
    "vllm:generation_tokens_total{",
)
_ENGINES = "nv_trt_llm_request_metrics{"
_ESTABLISHED = "01"


def servers(mark: str, proc: Path = Path("/proc")) -> list[int]:
    """Process ids of every tritonserver that was started with the argument `mark`."""
    pids = []
    for folder in proc.glob("[0-9]*"):
        try:
            argv = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            # The process ended after it was listed.
            continue
        # mpirun's own command line contains the same argument: the program's name differs.
        if argv[0].endswith(b"tritonserver") and mark.encode() in argv:
            pids.append(int(folder.name))
    return pids


def connections(ports: Collection[int], net: Path = Path("/proc/net")) -> int:
    """Open connections to the server in this network namespace; 0 where /proc has no table."""
    count = 0
    for table in ("tcp", "tcp6"):
        try:
            lines = (net / table).read_text().splitlines()[1:]
        except OSError:
            # A kernel without IPv6 has one table.
            continue
        for line in lines:
            _, local, _, state, *_ = line.split()
            count += state == _ESTABLISHED and int(local.rpartition(":")[2], 16) in ports
    return count


def refuses(ports: Collection[int]) -> bool:
    """Whether a model's process of the server with one of these ports has died."""
    # Front ends without such processes come without the program.
    if not Path(__file__).with_name("alive.py").exists():
        return False
    # Tests load this file without its folder in the path.
    sys.path.insert(0, str(Path(__file__).parent))
    alive: Any = importlib.import_module("alive")
    return any(any(alive.dead(port)) for port in ports)


def await_disconnected(ports: Collection[int], deadline: float) -> None:
    """Wait until no client has been connected for a moment, or the deadline has passed."""
    last = time.monotonic()
    while (now := time.monotonic()) < deadline:
        if connections(ports):
            last = time.monotonic()
        elif now - last >= _QUIET:
            return
        time.sleep(_POLL)


def in_flight(page: str) -> float:
    """Requests that are queued or running, from a page of the server's metrics."""
    lines = (line for line in page.splitlines() if line.startswith(_WORK))
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def progress(page: str) -> list[str]:
    """The counters of finished work; if two pages differ in them, a model worked in between."""
    return [line for line in page.splitlines() if line.startswith(_PROGRESS)]


def stepping(page: str) -> bool:
    """Whether the last report of an engine of TensorRT-LLM has requests in it."""
    reports = (line for line in page.splitlines() if line.startswith(_ENGINES))
    active = (line for line in reports if 'request_type="active"' in line)
    return any(float(line.rsplit(" ", 1)[1]) > 0 for line in active)


def await_idle(port: int, deadline: float, patience: float) -> None:
    """Wait until no model has work, the server does not answer, or the deadline has passed.

    Work without any progress for `patience` seconds does not count.
    """
    done: list[str] = []
    worked = progressed = time.monotonic()
    while (now := time.monotonic()) < deadline:
        try:
            page = _page(port)
        except (OSError, http.client.HTTPException):
            return
        if progress(page) != done:
            done, worked, progressed = progress(page), now, now
        elif now - progressed >= patience:
            return
        elif in_flight(page) > 0:
            worked = now
        elif now - worked >= (_STEP if stepping(page) else _BETWEEN):
            return
        time.sleep(_POLL)


def _page(port: int) -> str:
    # Not urllib: it would send the request to a proxy of the environment.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def drain(
    linger: float,
    reconnecting: float,
    timeout: float,
    port: int,
    clients: Collection[int],
    mark: str = "",
) -> bool:
    """Wait for clients to disconnect and for requests to finish; with `mark`, then end rank 0.

    Returns:
        Whether rank 0 ended in time; true without `mark`.
    """
    patience = _STEP if refuses(clients) else math.inf
    if patience == math.inf:
        time.sleep(linger)
        await_disconnected(clients, time.monotonic() + reconnecting)
    deadline = time.monotonic() + timeout
    if port:
        await_idle(port, deadline, patience)
    if not mark:
        return True
    for pid in servers(mark):
        os.kill(pid, signal.SIGTERM)
    while servers(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


if __name__ == "__main__":
    lingering, reconnecting, limit, metrics, ports, own = [*sys.argv[1:], ""][:6]
    served = {int(number) for number in ports.split(",")}
    in_time = drain(float(lingering), float(reconnecting), float(limit), int(metrics), served, own)
    sys.exit(0 if in_time else 1)
