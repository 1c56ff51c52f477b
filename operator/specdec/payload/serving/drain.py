"""The preStop hook of a server: what it accepted is answered before anything is told to end.

A server that gets SIGTERM refuses every call from then on, also those that its own BLS makes for
an answer it has begun, those of an ensemble for its next step, and those that come over a
connection from before. So the hook serves on until endpoints have forgotten the pod, then until
the last client has closed its connection, and then until no model works. A connection of gRPC ends
by itself: the server gives each an age and tells its client to open another, which the Service
leads to another pod. Nothing tells a client that keeps one of HTTP, so the wait for connections is
bounded.

With several ranks, mpirun is the container's first process. On SIGTERM it passes the signal on and
kills its ranks shortly after, which would cut the server's own drain. So rank 0 is told before
mpirun is: when it ends, the other ranks end by themselves, and mpirun after them.

Arguments: seconds to go on serving while endpoints are removed, seconds for connections to end,
seconds for all that follows, the port of the metrics, the ports of clients with commas between,
and with several ranks the one argument by which the server of rank 0 is known. A server that is
gone already is drained.
"""

import http.client
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path

_POLL = 0.2
# Clients that connect for each request have none open now and then.
_QUIET = 2.0
# A request may be on its way between two models, or begun and not counted yet.
_BETWEEN = 0.5
# An engine of TensorRT-LLM reports at the end of a step, and keeps its last report when it idles.
_STEP = 10.0
# Work that waits or is under way: of the BLS, of Triton's queues, of a Reference engine.
_WORK = (
    "specdec_requests_in_flight{",
    "specdec_engine_requests{",
    "nv_inference_pending_request_count{",
)
# What changes whenever a model has begun or ended something, or an engine has made a step.
_PROGRESS = (
    "nv_inference_request_success{",
    "nv_inference_request_failure{",
    "nv_inference_exec_count{",
    "nv_trt_llm_general_metrics{",
)
_ENGINES = "nv_trt_llm_request_metrics{"
_ESTABLISHED = "01"


def servers(mark: str, proc: Path = Path("/proc")) -> list[int]:
    """Process ids of every tritonserver that was started with the argument `mark`."""
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            # The process ended between the listing and the look.
            continue
        # mpirun has the same argument in its list: the program's own name tells them apart.
        if words[0].endswith(b"tritonserver") and mark.encode() in words:
            found.append(int(folder.name))
    return found


def connections(ports: Collection[int], net: Path = Path("/proc/net")) -> int:
    """Open connections to the server, of this network namespace; 0 where nobody can say."""
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


def leave(ports: Collection[int], deadline: float) -> None:
    """Wait until no client has been connected for a moment, or the deadline has passed."""
    last = time.monotonic()
    while (now := time.monotonic()) < min(deadline, last + _QUIET):
        if connections(ports):
            last = now
        time.sleep(_POLL)


def in_flight(page: str) -> float:
    """Requests that wait or are worked on, by a page of the server's metrics."""
    lines = (line for line in page.splitlines() if line.startswith(_WORK))
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def progress(page: str) -> list[str]:
    """What has been done so far; two pages that differ in it have work between them."""
    return [line for line in page.splitlines() if line.startswith(_PROGRESS)]


def stepping(page: str) -> bool:
    """Whether the last report of an engine of TensorRT-LLM has requests in it."""
    reports = (line for line in page.splitlines() if line.startswith(_ENGINES))
    active = (line for line in reports if 'request_type="active"' in line)
    return any(float(line.rsplit(" ", 1)[1]) > 0 for line in active)


def finish(port: int, deadline: float) -> None:
    """Wait until no model works, or no server answers, or the deadline has passed."""
    done: list[str] = []
    worked = time.monotonic()
    while (now := time.monotonic()) < deadline:
        try:
            page = _page(port)
        except (OSError, http.client.HTTPException):
            return
        if in_flight(page) > 0 or progress(page) != done:
            done, worked = progress(page), now
        elif now - worked >= (_STEP if stepping(page) else _BETWEEN):
            return
        time.sleep(_POLL)


def _page(port: int) -> str:
    # Not urllib: a proxy of the environment is none for the pod's own server.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def drain(
    linger: float,
    moving: float,
    timeout: float,
    port: int,
    clients: Collection[int],
    mark: str = "",
) -> bool:
    """Let clients leave and answers finish, then end the server of rank 0.

    Returns:
        Whether it was gone in time.
    """
    time.sleep(linger)
    leave(clients, time.monotonic() + moving)
    deadline = time.monotonic() + timeout
    finish(port, deadline)
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
    lingering, moving_away, limit, page, ports, own = [*sys.argv[1:], ""][:6]
    served = {int(number) for number in ports.split(",")}
    in_time = drain(float(lingering), float(moving_away), float(limit), int(page), served, own)
    sys.exit(0 if in_time else 1)
