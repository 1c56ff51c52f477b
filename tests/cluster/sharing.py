"""The processes of a test run that share a cluster: the first starts it, the last stops it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from cluster import folders, processes


def run() -> processes.Process:
    """Return the process of the whole test run, which ends after its workers."""
    # A worker of pytest-xdist is a child of that process.
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    return processes.owner(os.getppid()) if is_worker else processes.this()


class Sharing:
    """The processes that currently share a cluster."""

    def __init__(self, cluster: str) -> None:
        self._file = folders.clusters() / f".{cluster}.shared-by"
        self._lock = folders.clusters() / f".{cluster}.shared-by.lock"

    @contextmanager
    def joining(self) -> Iterator[int]:
        """Yield how many others share the cluster, then add this process; hold the lock."""
        with folders.locked(self._lock):
            others = self._others()
            yield len(others)
            self._write([*others, processes.this()])

    @contextmanager
    def leaving(self) -> Iterator[int]:
        """Remove this process, and yield how many processes remain; hold the lock."""
        with folders.locked(self._lock):
            others = self._others()
            self._write(others)
            yield len(others)

    def _others(self) -> list[processes.Process]:
        text = self._file.read_text() if self._file.exists() else "[]"
        known = [processes.Process(**entry) for entry in json.loads(text)]
        return [other for other in known if other.alive and other.pid != os.getpid()]

    def _write(self, sharing: list[processes.Process]) -> None:
        if sharing:
            folders.write(self._file, json.dumps([asdict(process) for process in sharing]))
        else:
            self._file.unlink(missing_ok=True)
