"""The liveness probe of a server: it answers, and no process of its models has died.

Triton calls itself live and ready, and every model too, when the process of a Python model has
died: it refuses whatever that model is asked, until the server is started again. Such a process
stays in the process table, since Triton does not ask for it before it starts another.

Arguments: the port of HTTP. Exits 1 with a sentence, which becomes an event of the pod.
"""

import http.client
import sys
from collections.abc import Iterator
from pathlib import Path

# What the kernel keeps of the name of a model's process.
_STUB = "(triton_python_b)"
_SECONDS = 3.0


def dead(port: int, proc: Path = Path("/proc")) -> Iterator[int]:
    """Ids of processes that have died of the models of the server with that port."""
    for folder in proc.glob("[0-9]*"):
        words = _read(folder / "stat")
        state, parent = [*words.rpartition(")")[2].split(), "", ""][:2]
        if _STUB not in words or state != "Z":
            continue
        # A test machine has other servers as well.
        if f"--http-port={port}" in _read(proc / parent / "cmdline").split("\0"):
            yield int(folder.name)


def live(port: int) -> bool:
    """Whether the server says so."""
    # Not urllib: a proxy of the environment is none for the pod's own server.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    try:
        connection.request("GET", "/v2/health/live")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def check(port: int, proc: Path = Path("/proc")) -> str | None:
    """What is wrong with the server; None if nothing is."""
    if not live(port):
        return f"the server does not answer on port {port}"
    if any(dead(port, proc)):
        return "the process of a model has died: the server refuses what needs it"
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        # The process ended between the listing and the look.
        return ""


if __name__ == "__main__":
    wrong = check(int(sys.argv[1]))
    if wrong:
        sys.exit(wrong)
