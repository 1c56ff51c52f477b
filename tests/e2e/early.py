"""The node comes up beside the tests before its own, which wait for other things most of the time.

As a process: those tests change the environment of theirs. Whatever it does not get done, and
whatever goes wrong in it, the layer's own fixture does over and tells.
"""

import os
import subprocess
import sys

import pytest

from cluster import folders, lifecycle, processes
from cluster.handle import Node
from cluster.progress import report
from controlplane.operating import ACCOUNT
from demo.machine import IMAGES

# So many tests before the first on the node, it is begun: they take longer than it does.
AHEAD = 40


class Early:
    """A plugin for one run: begins with the node in time, and leaves none behind."""

    def __init__(self, name: str, trigger: pytest.Item) -> None:
        self.name = name
        self._trigger = trigger
        self._process: subprocess.Popen[bytes] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if item is not self._trigger:
            return
        tests = str(folders.repository() / "tests")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "e2e.early", self.name, str(os.getpid())],
            env={**os.environ, "PYTHONPATH": tests},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait(self) -> None:
        """Until the node is there, or will not be."""
        if self._process is not None:
            self._process.wait()

    def pytest_sessionfinish(self) -> None:
        """A run may end before any test has asked for the node."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            lifecycle.down(self.name, report)


def machine(name: str, *, keep: bool = False, owner: processes.Process | None = None) -> Node:
    """The node of this layer, not yet up: for its fixture the same as for whoever is early.

    Its audit log tells what the operator asks.
    """
    account = f"system:serviceaccount:{':'.join(ACCOUNT)}"
    return Node(name, keep=keep, owner=owner, audited=account)


def load(node: Node) -> None:
    """Give the node what its pods run."""
    for target, tag in IMAGES.items():
        node.load(target, tag)


def main(name: str, owner: int) -> None:
    """Bring the node up with its images; its owner takes it down."""
    load(machine(name, owner=processes.owner(owner)).__enter__())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
