"""SIMULATION: an engine whose rank is a process of its own, as behind a TensorRT-LLM orchestrator.

The rank loads its engine for some time, and then serves. No step runs while it loads, or after the
process has ended. An orchestrator with pre-spawned ranks reports its models as ready all the time;
a leader, and an orchestrator that spawns its ranks, wait until the rank has loaded.

Tests kill the process, or send it SIGUSR1 to end the load at once. The process runs this file:

    simulated_rank.py SECONDS MODEL
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import threading

_LOADING, _LOADED = b"loading\n", b"loaded\n"
# From Linux's prctl.h.
_PR_SET_PDEATHSIG = 1


class SimulatedRank:
    """The process of a rank. The constructor starts it, and returns when it accepts SIGUSR1.

    Args:
        model: its Triton model, by which tests find the process.
        seconds: the duration of its load.

    Attributes:
        serving: set while the rank has loaded its engine and runs.
        pid: of the process.
    """

    def __init__(self, model: str, seconds: float) -> None:
        self.serving = threading.Event()
        self._decided = threading.Event()
        # Inside Triton's process of a Python model, sys.executable is not Python.
        argv = ["python3", "-I", __file__, str(seconds), model]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self._watcher = threading.Thread(target=self._watch, name="rank", daemon=True)
        self._watcher.start()

    def await_load(self) -> bool:
        """Wait for the end of the load; returns whether it succeeded."""
        self._decided.wait()
        return self.serving.is_set()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._watcher.join()

    def _watch(self) -> None:
        # Leaving the block waits for the end of the process.
        with self._process as process:
            assert process.stdout is not None
            if process.stdout.readline() == _LOADED:
                self.serving.set()
            self._decided.set()
            process.stdout.read()
        self.serving.clear()


def run(seconds: float) -> None:
    """Load for some seconds, and serve until a signal or the end of the parent's thread."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Block the signal before the first report, for which the parent waits. The signal's default
    # action would end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    _report(_LOADING)
    signal.sigtimedwait([signal.SIGUSR1], seconds)
    _report(_LOADED)
    signal.pause()


def _report(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.flush()


if __name__ == "__main__":
    run(float(sys.argv[1]))
