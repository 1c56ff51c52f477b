"""The liveness probe of a server: it answers, and neither a process nor an engine has failed.

When the process of a Python model has died, Triton still reports itself and every model as live
and ready. It refuses requests to that model until the server restarts. The dead process stays in
the process table as a zombie, because Triton does not wait for it. The readiness probe
(`engines.py`) and the preStop hook (`drain.py`) find it with the functions of this program.

An engine that stops answering does not start again by itself either. The readiness probe records
when each one last gave proof that it works. This probe fails when an engine has failed, and its
last proof is older than the given time.

Arguments: the port of HTTP, and that time in seconds. Exits 1 with a message, which becomes an
event of the pod.
"""

import http.client
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

STATE = Path(os.environ.get("SPECDEC_ENGINES", "/tmp/specdec-engines"))  # noqa: S108
# The name of a model's process, as the kernel shortens it.
_STUB = "(triton_python_b)"
_SECONDS = 3.0
DEAD = "the process of a model has died: the server refuses its requests"


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


def ranks(mark: str, proc: Path = Path("/proc")) -> int:
    """The number of running tritonservers with an argument that starts with `mark`."""
    return sum(_rank(folder / "cmdline", mark.encode()) for folder in proc.glob("[0-9]*"))


def _rank(cmdline: Path, mark: bytes) -> bool:
    try:
        # A dead process whose parent has not waited for it has no arguments.
        argv = cmdline.read_bytes().split(b"\0")
    except OSError:
        return False
    # mpirun's own command line contains the same arguments: the program's name differs.
    return argv[0].endswith(b"tritonserver") and any(word.startswith(mark) for word in argv)


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


def failed(patience: float, state: Path = STATE) -> Iterator[str]:
    """Engines, or their ranks, that failed and showed no progress for `patience` seconds."""
    try:
        records = json.loads(state.read_bytes())
        for name, record in records.items():
            if record["failed"] and time.monotonic() - record["at"] > patience:
                yield name
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # The server has not started, or another release of the probe wrote the file.
        return


def check(port: int, patience: float, proc: Path = Path("/proc")) -> str | None:
    """The problem of the server in one sentence; None if it is healthy."""
    if not live(port):
        return f"the server does not answer on port {port}"
    if any(dead(port, proc)):
        return DEAD
    if names := list(failed(patience)):
        return f"{', '.join(names)}: no token and no progress for more than {patience:g} s"
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        # The process ended after it was listed.
        return ""


if __name__ == "__main__":
    wrong = check(int(sys.argv[1]), float(sys.argv[2]))
    if wrong:
        sys.exit(wrong)
