"""Other programs: they run with a deadline, and their output is shown line by line."""

import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from demo.errors import DemoError

ROOT = Path(__file__).resolve().parents[2]
Report = Callable[[str], None]
# The longest run of a program: a cold build of Kubernetes on two slow cores.
_LONGEST = 1800.0


def run(report: Report, *argv: str, seconds: float = _LONGEST) -> None:
    """Run a program to its end, showing its output line by line.

    Raises:
        DemoError: the program failed (the message is its last line) or did not end in time.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        argv,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    last, deadline, lines = "", time.monotonic() + seconds, lines_of(process)
    try:
        while (line := lines.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
            if line.strip():
                last = line.strip()
                report(last)
        status = process.wait(seconds)
    except (queue.Empty, subprocess.TimeoutExpired):
        raise DemoError(
            f"{argv[0]} did not end within {seconds:g} s; its last output: {last}"
        ) from None
    finally:
        end(process)
    if status != 0:
        raise DemoError(last or f"{argv[0]} ended with status {status}")


def lines_of(process: subprocess.Popen[str]) -> "queue.SimpleQueue[str | None]":
    """Return a queue of output lines, then None. A thread reads them, so waits can time out."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        if process.stdout is not None:
            with process.stdout as output:
                for line in output:
                    lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def end(process: subprocess.Popen[str]) -> None:
    """End a process that may have ended already, and wait for it."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
