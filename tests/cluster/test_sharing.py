"""Each process that shares a cluster learns whether it is the first or the last."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cluster.sharing import Sharing

PROGRAM = """
from cluster.sharing import Sharing
sharing = Sharing("shared")
for change in (sharing.joining, sharing.leaving):
    with change() as others:
        pass
    print(others, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))


class Sharer:
    """A process that joins, and leaves on request."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        self.others = self._number()

    def leave(self) -> int:
        """Let the process leave, and return how many processes remain."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._number()

    def _number(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@contextmanager
def sharers(count: int) -> Iterator[list[Sharer]]:
    """Yield count processes that have joined one after the other."""
    with ExitStack() as stack:
        joined = []
        for _ in range(count):
            sharer = Sharer()
            stack.enter_context(sharer.process)
            stack.callback(sharer.process.kill)
            joined.append(sharer)
        yield joined


@pytest.mark.slow
def test_processes_know_who_is_first_and_who_is_last() -> None:
    with sharers(3) as (first, second, third):
        assert [sharer.others for sharer in (first, second, third)] == [0, 1, 2]
        assert [sharer.leave() for sharer in (second, first, third)] == [2, 1, 0]


@pytest.mark.slow
def test_killed_process_does_not_count() -> None:
    with sharers(2) as (first, second):
        first.process.kill()
        first.process.wait()
        with Sharing("shared").joining() as others:
            assert others == 1
        assert second.leave() == 1
        with Sharing("shared").leaving() as others:
            assert others == 0
