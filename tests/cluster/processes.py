"""Starting programs that outlive the tool, and stopping exactly those.

A process is known by its pid and its start time, so a pid that the kernel gave to another
process is never signalled. Every process also carries the folder of its cluster in its
environment. That identifies a process whose record is missing because the tool was killed.
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


@dataclass(frozen=True)
class Process:
    """One started program: pid and start time in clock ticks since boot identify it."""

    name: str
    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        return _start_time(self.pid) == self.started


def until(
    true: Callable[[], bool], seconds: float, otherwise: Callable[[], str], step: float = 0.05
) -> None:
    """Poll until true() holds.

    Raises:
        ClusterError: it did not within seconds; the sentence is otherwise().
    """
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise ClusterError(otherwise())
        time.sleep(step)


def spawn(name: str, argv: list[str], state: Path, extra: Mapping[str, str] | None = None) -> int:
    """Start argv in its own session with its output in logs/NAME.log; returns the pid."""
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
    """Note that pid belongs to this cluster.

    Raises:
        ClusterError: it has ended already.
    """
    started = _start_time(pid)
    if started is None:
        raise ClusterError(f"{name} ended at once: {last_output(state, name)}")
    process = Process(name, pid, started)
    folders.write(state / "pids" / f"{name}.json", json.dumps(asdict(process)))
    return process


def recorded(state: Path) -> dict[str, Process]:
    """Return every process on record, running or not, by name."""
    files = (state / "pids").glob("*.json")
    return {file.stem: Process(**json.loads(file.read_text())) for file in files}


def stop(process: Process, grace: float) -> None:
    """End process and wait until it has ended; after grace seconds it is killed."""
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        if not _signal(process, number):
            return
        with contextlib.suppress(ClusterError):
            until(lambda: not process.alive, seconds, lambda: "")
    if process.alive:
        raise ClusterError(f"{process.name} (pid {process.pid}) does not end; end it by hand.")


def _signal(process: Process, number: signal.Signals) -> bool:
    """Signal process; False when it has ended. A process that reuses the pid gets none."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # The descriptor belongs to one process, so a reused pid cannot change its meaning.
        if process.alive:
            signal.pidfd_send_signal(descriptor, number)
            return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return False


def this() -> Process:
    """Return the process that calls."""
    return owner(os.getpid())


def owner(pid: int) -> Process:
    """Return the process with this pid as one that clusters can belong to.

    Raises:
        ClusterError: there is none.
    """
    started = _start_time(pid)
    if started is None:
        raise ClusterError(f"/proc shows no process {pid}; the tool needs Linux with /proc.")
    return Process("owner", pid, started)


def strays(state: Path) -> Iterator[Process]:
    """Yield running processes that carry this cluster's mark in their environment."""
    mark = f"{MARK}={state}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # It ended meanwhile, or belongs to another user.
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
    """Return where anything is mounted in any process's view of the file system."""
    points: set[str] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            lines = (entry / "mountinfo").read_text().splitlines()
        except OSError:
            continue  # It ended meanwhile, or belongs to another user.
        points.update(line.split()[4] for line in lines)
    return points


def last_output(state: Path, name: str) -> str:
    """Return the end of a program's log in one line."""
    log = state / "logs" / f"{name}.log"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return (" / ".join(lines[-2:]) or "no output")[-600:] + f" (all of it: {log})"


def check(state: Path, names: Iterable[str]) -> None:
    """Raise ClusterError with its last output if one of the named processes has ended."""
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
    """Return the fields of /proc/PID/stat after the name, which may hold spaces itself."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
