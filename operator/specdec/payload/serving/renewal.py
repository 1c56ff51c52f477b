"""Says when the files that a server read at its start have changed; runs beside it, in its pod.

Triton reads certificates once. The kubelet changes the files of a mounted Secret, and nobody
tells the operator, which may not read Secrets: it reads the last line of this program's log, and
replaces the pods as it does for any change.

    renewal.py MEMORY FILE ...   MEMORY outlives a restart of this container, not the pod

A line is JSON: `{"certificate": {"started": MARK, "now": MARK, "at": SECONDS}}`. A mark is of the
files' public content: 16 hex digits of SHA-256. While a file is missing there is nothing new.
"""

import hashlib
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_PERIOD = 10.0


def mark(files: Sequence[Path]) -> str:
    """What tells these files from others; empty while one of them is missing."""
    digest = hashlib.sha256()
    try:
        for file in files:
            content = file.read_bytes()
            digest.update(len(content).to_bytes(8, "big") + content)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()[:16]


def look(memory: Path, files: Sequence[Path], last: str) -> str:
    """Print a line if the files are others than at the last look; returns their mark."""
    now = mark(files)
    if not now or now == last:
        return last
    if not memory.exists():
        # The server starts beside this program, and reads what is there now.
        memory.write_text(now)
    told = {"started": memory.read_text(), "now": now, "at": round(time.time(), 3)}
    print(json.dumps({"certificate": told}), flush=True)
    return now


def watch(memory: Path, files: Sequence[Path]) -> None:
    """Look again and again, until the process is ended."""
    last = ""
    while True:
        last = look(memory, files, last)
        time.sleep(_PERIOD)


if __name__ == "__main__":
    # The first process of a container ignores what it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    watch(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
