"""The liveness probe of a server: the server answers, and no process of its models has died.

When the process of a Python model has died, Triton still reports itself and every model as live
and ready. It refuses requests to that model until the server restarts. The dead process stays in
the process table as a zombie, because Triton does not wait for it.

Arguments: the port of HTTP. Exits 1 with a message, which becomes an event of the pod.
"""

import http.client
import sys
from collections.abc import Iterator
from pathlib import Path

# The name of a model's process, as the kernel shortens it.
_STUB = "(triton_python_b)"
_SECONDS = 3.0


def dead(port: int, proc: Path = Path("/proc")) -> Iterator[int]:
    """Ids of the dead model processes of the server with that port."""
    for folder in proc.glob("[0-9]*"):
        stat = _read(folder / "stat")
        state, parent = [*stat.rpartition(")")[2].split(), "", ""][:2]
        if _STUB not in stat or state != "Z":
            continue
        # A test machine runs other servers as well.
        if f"--http-port={port}" in _read(proc / parent / "cmdline").split("\0"):
            yield int(folder.name)


def live(port: int) -> bool:
    """Whether the server reports itself as live."""
    # Not urllib: it would send the request to a proxy of the environment.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    try:
        connection.request("GET", "/v2/health/live")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def check(port: int, proc: Path = Path("/proc")) -> str | None:
    """The problem of the server in one sentence; None if it is healthy."""
    if not live(port):
        return f"the server does not answer on port {port}"
    if any(dead(port, proc)):
        return "the process of a model has died: the server refuses what needs it"
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        # The process ended after it was listed.
        return ""


if __name__ == "__main__":
    wrong = check(int(sys.argv[1]))
    if wrong:
        sys.exit(wrong)
