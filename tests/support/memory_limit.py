"""Run a program under the memory limit of its container."""

import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cluster.processes import until
from specdec.api.quantity import amount

_ROOT = Path("/sys/fs/cgroup")
# The controller of the memory in version 1 of control groups, and the root of version 2.
_LIMITS = {"memory": "memory.limit_in_bytes", "": "memory.max"}
# The program joins the group, then becomes the command.
_JOIN = 'echo $$ > "$0" && exec "$@"'


@dataclass
class Peak:
    """The largest memory of a program and its child processes that `update` has met, in bytes."""

    memory: int = 0

    def update(self, pid: int) -> None:
        """Add the largest memory that each of the processes has had."""
        self.memory = max(self.memory, sum(map(_peak, _tree(pid))))


def container_limit(container: dict[str, object]) -> int:
    """Return the memory limit of a container, in bytes."""
    resources = container["resources"]
    assert isinstance(resources, dict)
    return int(amount(resources["limits"]["memory"]))


@contextmanager
def limited(command: Sequence[str], limit: int) -> Iterator[list[str]]:
    """Yield the command in a control group with the limit; without the right to it, unchanged.

    The kernel ends a process of the group that needs more memory.
    """
    for controller, file in _LIMITS.items():
        group = _ROOT / controller / f"specdec-{uuid.uuid4().hex[:8]}"
        try:
            group.mkdir()
            (group / file).write_text(str(limit), "ascii")
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        try:
            yield ["sh", "-c", _JOIN, str(group / "cgroup.procs"), *command]
        finally:
            until(partial(_removed, group), partial("{} has processes".format, group))
        return
    yield [*command]


def _removed(group: Path) -> bool:
    """Remove a group; False while one of its processes, such as a child of the program, ends."""
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def _tree(pid: int) -> list[int]:
    processes = [pid]
    for process in processes:
        with suppress(OSError):
            for task in Path(f"/proc/{process}/task").glob("*/children"):
                processes += [int(child) for child in task.read_text("ascii").split()]
    return processes


def _peak(pid: int) -> int:
    """Return the largest resident memory of a process, 0 if it has ended."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text("ascii")
        if peak := re.search(r"VmHWM:\s+(\d+) kB", status):
            return int(peak[1]) * 1024
    return 0
