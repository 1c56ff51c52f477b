"""Report in the log when the certificate files of a server have changed; runs as a sidecar.

Triton reads certificates only at its start. The kubelet updates the files of a mounted Secret, and
the operator may not read Secrets. So the operator reads the last line of this program's log, and
replaces the pods as it does for any change.

    renewal.py MEMORY FILE ...   MEMORY outlives a restart of this container, not the pod

A line is JSON: `{"certificate": {"started": MARK, "now": MARK, "at": SECONDS}}`. A mark is a
fingerprint of the files' public content: 16 hex digits of SHA-256. While a file is missing, the
program reports nothing.
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
    """A fingerprint of the files' content; empty while one of them is missing."""
    digest = hashlib.sha256()
    try:
        for file in files:
            content = file.read_bytes()
            digest.update(len(content).to_bytes(8, "big") + content)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()[:16]


def check(memory: Path, files: Sequence[Path], last: str) -> str:
    """Print a line if the files have changed since the mark `last`; returns their mark."""
    now = mark(files)
    if not now or now == last:
        return last
    if not memory.exists():
        # The server starts together with this program and reads the same files.
        memory.write_text(now)
    report = {"started": memory.read_text(), "now": now, "at": round(time.time(), 3)}
    print(json.dumps({"certificate": report}), flush=True)
    return now


def watch(memory: Path, files: Sequence[Path]) -> None:
    """Check the files periodically, until the process is ended."""
    last = ""
    while True:
        last = check(memory, files, last)
        time.sleep(_PERIOD)


if __name__ == "__main__":
    # The kernel drops signals for the first process of a container unless it handles them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    watch(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
