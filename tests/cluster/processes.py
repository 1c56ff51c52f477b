"""Starts programs that outlive the tool, and stops only those programs.

The pid and the start time identify a process, so the tool never signals another process that
reuses the pid. Every process also carries the folder of its cluster in its environment. That
identifies a process whose record is missing because the tool was killed.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster import folders
from cluster.errors import ClusterError

MARK = "SPECDEC_CLUSTER_STATE"
# The limit for a state that comes within seconds on an idle machine. It only ends runs that would
# wait for ever, so it allows for a machine that is many times slower for minutes.
DEADLINE_SECONDS = 600
# The same limit as an option of kubectl and helm.
TIMEOUT = f"--timeout={DEADLINE_SECONDS}s"


@dataclass(frozen=True)
class Process:
    """One started program, identified by its pid and start time (in clock ticks since boot)."""

    name: str
    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether this process still runs; a zombie does not count as running."""
        return _start_time(self.pid) == self.started


def until(
    true: Callable[[], bool],
    otherwise: Callable[[], str],
    seconds: float = DEADLINE_SECONDS,
    step: float = 0.05,
) -> None:
    """Poll until true() holds.

    Raises:
        ClusterError: true() did not hold within seconds; otherwise() returns the message.
    """
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise ClusterError(otherwise())
        time.sleep(step)


def spawn(name: str, argv: list[str], state: Path, extra: Mapping[str, str] | None = None) -> int:
    """Start argv in its own session with its output in logs/NAME.log, and return the pid."""
    log = state / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawnp(
        argv[0],
        argv,
        {**os.environ, **(extra or {}), MARK: str(state)},
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )


def start(
    name: str, argv: list[str], state: Path, extra: Mapping[str, str] | None = None
) -> Process:
    """Start argv and record it in pids/NAME.json."""
    return record(name, spawn(name, argv, state, extra), state)


def record(name: str, pid: int, state: Path) -> Process:
    """Record in pids/NAME.json that pid belongs to this cluster.

    Raises:
        ClusterError: the process has ended already.
    """
    started = _start_time(pid)
    if started is None:
        raise ClusterError(f"{name} ended at once: {last_output(state, name)}")
    process = Process(name, pid, started)
    folders.write(state / "pids" / f"{name}.json", json.dumps(asdict(process)))
    return process


def recorded(state: Path) -> dict[str, Process]:
    """Return every recorded process by name, running or not."""
    files = (state / "pids").glob("*.json")
    return {file.stem: Process(**json.loads(file.read_text())) for file in files}


def stop(process: Process, grace: float) -> None:
    """Terminate process and wait until it has ended; kill it after grace seconds."""
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        if not _signal(process, number):
            return
        with contextlib.suppress(ClusterError):
            until(lambda: not process.alive, lambda: "", seconds)
    if process.alive:
        raise ClusterError(f"{process.name} (pid {process.pid}) does not end; end it by hand.")


def _signal(process: Process, number: signal.Signals) -> bool:
    """Signal process, but never another that reuses its pid; return False if it has ended."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # The descriptor refers to one process, even if another process reuses the pid.
        if process.alive:
            signal.pidfd_send_signal(descriptor, number)
            return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return False


def this() -> Process:
    """Return the calling process, as the owner of a cluster.

    Raises:
        ClusterError: this machine has no /proc.
    """
    started = _start_time(os.getpid())
    if started is None:
        raise ClusterError("/proc does not show this process; the tool needs Linux with /proc.")
    return Process("owner", os.getpid(), started)


def strays(state: Path) -> Iterator[Process]:
    """Yield other running processes that have this cluster's mark in their environment."""
    mark = f"{MARK}={state}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # The process has ended, or belongs to another user.
        pid = int(entry.name)
        started = _start_time(pid)
        if marked and started is not None and pid != os.getpid():
            yield Process(f"a process of {state.name}", pid, started)


def children(pid: int) -> list[int]:
    """Return the pids whose parent is pid."""
    return [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if (fields := _stat(int(entry.name))) and int(fields[1]) == pid
    ]


def mount_points() -> set[str]:
    """Return the paths of all mounts in the mount namespaces of all processes."""
    points: set[str] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            lines = (entry / "mountinfo").read_text().splitlines()
        except OSError:
            continue  # The process has ended, or belongs to another user.
        points.update(line.split()[4] for line in lines)
    return points


def last_output(state: Path, name: str) -> str:
    """Return the end of a program's log as one line."""
    log = state / "logs" / f"{name}.log"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return (" / ".join(lines[-2:]) or "no output")[-600:] + f" (all of it: {log})"


def check(state: Path, names: Iterable[str]) -> None:
    """Raise ClusterError with a process's last output if a process of `names` has ended."""
    processes = recorded(state)
    for name in names:
        if name in processes and not processes[name].alive:
            raise ClusterError(f"{name} ended: {last_output(state, name)}")


def _start_time(pid: int) -> int | None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain spaces."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
