"""Processes that share a cluster: who is the first, and who is the last."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cluster.users import Users

USER = """
from cluster.users import Users
users = Users("shared")
for change in (users.joining, users.leaving):
    with change() as others:
        pass
    print(others, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))


class User:
    """A process that joins, and leaves on request."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.others = self._number()

    def leave(self) -> int:
        """How many remain."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._number()

    def _number(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@contextmanager
def users(count: int) -> Iterator[list[User]]:
    """So many processes that have joined one after the other."""
    with ExitStack() as stack:
        joined = []
        for _ in range(count):
            user = User()
            stack.enter_context(user.process)
            stack.callback(user.process.kill)
            joined.append(user)
        yield joined


def test_users_know_who_is_first_and_who_is_last() -> None:
    with users(3) as (first, second, third):
        assert [user.others for user in (first, second, third)] == [0, 1, 2]
        assert [user.leave() for user in (second, first, third)] == [2, 1, 0]


def test_killed_user_does_not_count() -> None:
    with users(2) as (first, second):
        first.process.kill()
        first.process.wait()
        with Users("shared").joining() as others:
            assert others == 1
        assert second.leave() == 1
        with Users("shared").leaving() as others:
            assert others == 0
