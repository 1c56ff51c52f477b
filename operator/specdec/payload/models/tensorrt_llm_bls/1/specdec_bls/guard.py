"""Notices that the process of an engine has died, and takes over the answers that wait for it.

A model of Triton's python backend runs in a process of its own. When one dies, Triton 2.51 refuses
what it is asked from then on, and never answers what it had been asked before: those calls do not
return, and nothing outside Triton can make them. So the thread that waits is given up, and another
one ends the answer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specdec_bls.task import Engine, Tensors

_PERIOD_SECONDS = 0.25
# Places in /proc/PID/stat behind the program's name: state, parent and start time.
_STATE, _PARENT, _STARTED = 0, 1, 19
_DEAD = ("Z", "X")


class LostError(BaseException):
    """A call came back after its answer was given to another thread: this one is to end.

    Not an `Exception`, since nothing on the way out may answer for it.
    """


@dataclass(frozen=True)
class Process:
    """A process of this machine; its start time tells it from a later one of the same id."""

    folder: Path
    started: str

    def alive(self) -> bool:
        """Whether it still runs; one that has died stays in the table until its parent looks."""
        fields = _fields(self.folder)
        return bool(fields) and fields[_STARTED] == self.started and fields[_STATE] not in _DEAD


def process_of(
    model: str, server: int | None = None, proc: Path = Path("/proc")
) -> Process | None:
    """The process of a Python model of this server; None for an engine inside the server itself.

    Args:
        model: its name.
        server: process id of the server; this process' parent by default.
        proc: where processes are listed.
    """
    parent = str(os.getppid() if server is None else server)
    for folder in proc.glob("[0-9]*"):
        fields = _fields(folder)
        if fields and fields[_PARENT] == parent and fields[_STATE] not in _DEAD:
            # As Triton starts it: the stub, then `.../MODEL/VERSION/model.py`.
            words = _read(folder / "cmdline").split("\0")
            if len(words) > 1 and words[1].split("/")[-3:-2] == [model]:
                return Process(folder, fields[_STARTED])
    return None


class _Call:
    """A call that is out; told from another one by being another object."""

    def __init__(self, engine: str) -> None:
        self.engine = engine


class Turn:
    """One answer's dealings with the engines: which of them it waits for, if any.

    Args:
        take_over: called once, with the engine's name, from the guard's thread, when that engine
            died with a call of this answer: whoever waits for it ends with `LostError`.
    """

    def __init__(self, take_over: Callable[[str], None]) -> None:
        self._take_over: Callable[[str], None] | None = take_over
        self._lock = threading.Lock()
        self._call: _Call | None = None

    def call(self, name: str, engine: Engine, inputs: Tensors, outputs: Sequence[str]) -> Tensors:
        """The engine's answer, or its `EngineError`.

        Raises:
            LostError: the answer is another thread's by now.
        """
        mine = self._call = _Call(name)
        try:
            return engine.call(inputs, outputs)
        finally:
            with self._lock:
                # Whoever has taken over may be in a call of its own.
                lost = self._call is not mine
                if not lost:
                    self._call = None
            if lost:
                raise LostError(name)

    def close(self) -> None:
        """The answer has ended: let go of it.

        What it holds of Triton's goes with the last reference, not when the collector of cycles
        comes by: that is shared memory.
        """
        self._take_over = None

    def give_up(self, engine: str) -> bool:
        """Hand the answer on if it waits for that engine; whether it did."""
        with self._lock:
            call, take_over = self._call, self._take_over
            if call is None or call.engine != engine or take_over is None:
                return False
            self._call = None
        take_over(engine)
        return True


class GuardedEngine:
    """An engine whose calls belong to a turn."""

    def __init__(self, name: str, engine: Engine, turn: Turn) -> None:
        self._name = name
        self._engine = engine
        self._turn = turn

    def call(self, inputs: Tensors, outputs: Sequence[str]) -> Tensors:
        """One whole answer, or `EngineError`."""
        return self._turn.call(self._name, self._engine, inputs, outputs)


class Guard:
    """The thread that looks after the processes of engines while answers wait for them.

    Args:
        find: the process of a model.
        period: seconds between two looks.

    Attributes:
        lost: threads that wait for a process that died.
    """

    def __init__(
        self,
        find: Callable[[str], Process | None] = process_of,
        period: float = _PERIOD_SECONDS,
    ) -> None:
        self.lost = 0
        self._find = find
        self._period = period
        self._processes: dict[str, Process | None] = {}
        self._turns: set[Turn] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine-guard", daemon=True)
        self._thread.start()

    def add(self, turn: Turn, engines: Sequence[str]) -> None:
        """Look after an answer from its first call on; the engines are those it may call."""
        with self._changed:
            for engine in engines:
                if engine not in self._processes:
                    self._processes[engine] = self._find(engine)
            self._turns.add(turn)
            self._changed.notify()

    def remove(self, turn: Turn) -> None:
        """The answer has ended."""
        with self._changed:
            self._turns.discard(turn)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._turns or self._closed)
                self._changed.wait_for(lambda: self._closed, timeout=self._period)
                if self._closed:
                    return
                turns = list(self._turns)
                dead = [name for name, one in self._processes.items() if one and not one.alive()]
            for engine in dead:
                # Every time: a call may have gone out just before Triton noticed.
                for turn in turns:
                    self.lost += turn.give_up(engine)
                self._renew(engine)

    def _renew(self, engine: str) -> None:
        """Look after the process that some releases of Triton start in place of a dead one."""
        found = self._find(engine)
        if found is not None:
            with self._changed:
                self._processes[engine] = found


def _fields(folder: Path) -> list[str]:
    """Fields of a process behind its name, which may hold blanks; empty when it is gone."""
    return _read(folder / "stat").rpartition(")")[2].split()


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        # The process ended between the listing and the look.
        return ""
