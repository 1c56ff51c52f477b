"""Records all statuses of a run by a watch, and every request of the operator."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cluster.processes import DEADLINE_SECONDS
from controlplane.audit import Log, Right
from controlplane.tour import mark
from demo.kubectl import Kubectl
from e2e.world import Object, World
from specdec.api.model import API_VERSION, PLURAL

# Longer than any run; the watch ends when the recording ends.
_SECONDS = 86400.0
_READING = {"get", "list", "watch"}


@dataclass
class Record:
    """The distinct statuses of all SpeculativeModels, in order; `log` has the requests."""

    log: Log
    statuses: list[Object] = field(default_factory=list)
    _known: set[tuple[str, int, str]] = field(default_factory=set)

    def add(self, body: Object) -> None:
        """Add the resource if it has a new status."""
        if "status" in body and not self.has(body):
            self._known.add(_key(body))
            self.statuses.append(body)

    def has(self, body: Object) -> bool:
        """Return whether the record has exactly this status of the resource."""
        return _key(body) in self._known


def written(log: Log) -> set[Right]:
    """Return the permissions that the operator's account used to change SpeculativeModels."""
    group = API_VERSION.partition("/")[0]
    return {
        right
        for right in log.used()
        if right.group == group
        and right.resource.startswith(PLURAL)
        and right.verb not in _READING
    }


@contextmanager
def recording(world: World) -> Iterator[Record]:
    """Record statuses and requests in all namespaces from now on; yield the record."""
    record, over = Record(Log(world.node.audit_log)), threading.Event()
    thread = threading.Thread(target=_follow, args=(world.kubectl, record, over))
    thread.start()
    try:
        yield record
    finally:
        over.set()
        thread.join(DEADLINE_SECONDS)


def _follow(kubectl: Kubectl, record: Record, over: threading.Event) -> None:
    for body in kubectl.watch(PLURAL, "--all-namespaces", seconds=_SECONDS, over=over):
        record.add(body)


def _key(body: Object) -> tuple[str, int, str]:
    return body["metadata"]["uid"], *mark(body)
