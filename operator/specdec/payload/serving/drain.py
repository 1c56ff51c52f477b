"""The preStop hook of a server of several ranks: rank 0 answers what it accepted, then ends.

mpirun is the container's first process. On SIGTERM it passes the signal on and kills its ranks
shortly after, which would cut the server's own drain. So rank 0 is told before mpirun is: when it
ends, the other ranks end by themselves, and mpirun after them.

Arguments: seconds to go on serving while clients move away, seconds to wait for rank 0, and the
one argument by which the server of rank 0 is known. A server that is gone already is drained.
"""

import os
import signal
import sys
import time
from pathlib import Path

_POLL = 0.2


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


def drain(linger: float, timeout: float, mark: str) -> bool:
    """End the server of rank 0; whether it was gone in time."""
    time.sleep(linger)
    for pid in servers(mark):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while servers(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


if __name__ == "__main__":
    sys.exit(0 if drain(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]) else 1)
