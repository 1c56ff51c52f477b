"""Starting, identifying and stopping processes, without signals to any other process."""

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
    processes.until(lambda: "up" in log.read_text(), lambda: "it does not start")


def test_started_process_is_recorded_and_stopped(state: Path) -> None:
    started = processes.start("waits", WAITS, state)
    assert started.alive
    assert processes.recorded(state) == {"waits": started}
    processes.stop(started, 5)
    assert not started.alive


def test_process_that_ignores_sigterm_is_killed(state: Path) -> None:
    started = processes.start("stubborn", STUBBORN, state)
    ready(state, "stubborn")
    processes.stop(started, 0.1)
    assert not started.alive


def test_process_that_reuses_the_pid_is_not_stopped(state: Path) -> None:
    started = processes.start("waits", WAITS, state)
    impostor = dataclasses.replace(started, started=started.started - 1)
    assert not impostor.alive
    processes.stop(impostor, 0.1)
    assert started.alive


def test_unrecorded_process_is_a_stray(state: Path) -> None:
    pid = processes.spawn("lost", WAITS, state)
    ready(state, "lost")
    assert [stray.pid for stray in processes.strays(state)] == [pid]
    assert not list(processes.strays(state / "other"))


def test_check_reports_the_last_output_of_an_ended_process(state: Path) -> None:
    # The process must not end before it is recorded: that would be a different error.
    recorded = state / "recorded"
    os.mkfifo(recorded)
    program = f"import sys; open({str(recorded)!r}).read(); sys.exit('no such flag: --colour')"
    argv = [sys.executable, "-c", program]
    started = processes.record("short", processes.spawn("short", argv, state), state)
    recorded.write_text("")
    processes.until(lambda: not started.alive, lambda: "it does not end")
    with pytest.raises(ClusterError, match=r"short ended: no such flag: --colour"):
        processes.check(state, ["short"])


def test_program_that_ends_at_once_is_an_error(state: Path) -> None:
    pid = processes.spawn("short", [sys.executable, "-c", ""], state)
    os.waitpid(pid, 0)
    with pytest.raises(ClusterError, match="short ended at once"):
        processes.record("short", pid, state)


def test_children_lists_child_processes(state: Path) -> None:
    argv = [sys.executable, "-c", f"import subprocess; subprocess.run({WAITS!r})"]
    started = processes.start("parent", argv, state)
    ready(state, "parent")
    (child,) = processes.children(started.pid)
    assert child in {stray.pid for stray in processes.strays(state)}


def test_wait_that_times_out_raises_the_given_message() -> None:
    with pytest.raises(ClusterError, match=r"^never came$"):
        processes.until(lambda: False, lambda: "never came", seconds=0.1)


def test_stopped_process_runs_its_signal_handler(state: Path) -> None:
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
