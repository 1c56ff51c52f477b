"""Processes: started, recognised, stopped, and never mistaken for others."""

import dataclasses
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import processes
from cluster.errors import ClusterError

WAITS = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
    "while True: signal.pause()",
]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for process in list(processes.strays(tmp_path)):
        processes.stop(process, 1)


def ready(state: Path, name: str) -> None:
    log = state / "logs" / f"{name}.log"
    processes.until(lambda: "up" in log.read_text(), 20, lambda: "it does not start")


def test_starts_records_and_stops(state: Path) -> None:
    started = processes.start("waits", WAITS, state)
    assert started.alive
    assert processes.recorded(state) == {"waits": started}
    processes.stop(started, 5)
    assert not started.alive


def test_kills_what_ignores_the_request(state: Path) -> None:
    started = processes.start("stubborn", STUBBORN, state)
    ready(state, "stubborn")
    processes.stop(started, 0.1)
    assert not started.alive


def test_leaves_alone_whoever_got_the_pid_later(state: Path) -> None:
    started = processes.start("waits", WAITS, state)
    impostor = dataclasses.replace(started, started=started.started - 1)
    assert not impostor.alive
    processes.stop(impostor, 0.1)
    assert started.alive


def test_finds_what_was_started_but_never_recorded(state: Path) -> None:
    pid = processes.spawn("lost", WAITS, state)
    ready(state, "lost")
    assert [stray.pid for stray in processes.strays(state)] == [pid]
    assert not list(processes.strays(state / "other"))


def test_names_the_last_words_of_what_ended(state: Path) -> None:
    argv = [sys.executable, "-c", "import sys; sys.exit('no such flag: --colour')"]
    started = processes.record("short", processes.spawn("short", argv, state), state)
    processes.until(lambda: not started.alive, 20, lambda: "it does not end")
    with pytest.raises(ClusterError, match=r"short ended: no such flag: --colour"):
        processes.check(state, ["short"])


def test_a_program_that_ends_at_once_is_an_error(state: Path) -> None:
    pid = processes.spawn("gone", [sys.executable, "-c", ""], state)
    os.waitpid(pid, 0)
    with pytest.raises(ClusterError, match="gone ended at once"):
        processes.record("gone", pid, state)


def test_finds_children(state: Path) -> None:
    argv = [sys.executable, "-c", f"import subprocess; subprocess.run({WAITS!r})"]
    started = processes.start("parent", argv, state)
    ready(state, "parent")
    (child,) = processes.children(started.pid)
    assert child in {stray.pid for stray in processes.strays(state)}


def test_waiting_gives_up_with_the_sentence() -> None:
    with pytest.raises(ClusterError, match=r"^never came$"):
        processes.until(lambda: False, 0.1, lambda: "never came")


def test_signals_are_those_of_the_process(state: Path) -> None:
    argv = [
        sys.executable,
        "-c",
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('bye')))\n"
        "print('up', flush=True); signal.pause()",
    ]
    started = processes.start("polite", argv, state)
    ready(state, "polite")
    processes.stop(started, 20)
    assert (state / "logs" / "polite.log").read_text().split() == ["up", "bye"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
