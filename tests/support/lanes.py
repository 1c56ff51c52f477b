"""Distributes tests over processes: tests that share started programs form a lane.

A lane runs in one process. It waits for programs most of its time, so several lanes share two
processors. Files that start no programs go one by one to the next free process.
"""

from collections import OrderedDict
from typing import Any

from typing_extensions import override
from xdist.scheduler import LoadScopeScheduling

# Prefixes of test ids. The longest lane comes first, so that it does not run alone at the end.
_NODE = ("tests/e2e/", "tests/cluster/test_node.py")
# These use the same node, in their own namespace. `test_operator_restart.py` kills the operator:
# it shares a lane with `test_damage.py`, which needs every event, and with files whose commands
# need an operator. The other files of tests/e2e share a lane with `test_whole_run.py`, which needs
# the statuses that they cause.
_SECOND = tuple(
    f"tests/e2e/test_{name}.py"
    for name in (
        "certify",
        "damage",
        "install",
        "operator_restart",
        "page_commands",
        "prune",
    )
)
_OPERATOR = ("tests/controlplane/", "tests/cluster/test_control_plane.py")
_SERVERS = ("tests/triton/",)
_RELEASE = ("tests/chart/",)
# These run in their own process, with their own operator and control plane. Together with the rest
# of the folder, they would be the longest lane.
_SERVICE = tuple(
    f"tests/controlplane/test_{name}.py"
    for name in ("retention", "scaling", "service", "status", "stripped", "verification")
)
# Most of these use the control plane without an operator. It stops when they have ended.
_DEFINITION = tuple(
    f"tests/controlplane/test_{name}.py"
    for name in (
        "crd",
        "crd_hostile",
        "diagnosis",
        "gateways",
        "migration",
        "offline_verdict",
        "oldest_release",
        "watch_faults",
        "watches",
    )
)
LANES = (_NODE, _SECOND, _OPERATOR, _SERVERS, _SERVICE, _RELEASE, _DEFINITION)


def lane(nodeid: str) -> str:
    """Return the name of a test's lane or file, whose tests run in order in one process."""
    file = nodeid.partition("::")[0]
    places = [(place, own[0]) for own in LANES for place in own if file.startswith(place)]
    return max(places, key=lambda pair: len(pair[0]), default=(file, file))[1]


class Lanes(LoadScopeScheduling):  # type: ignore[misc]  # its package has no types
    """Gives each process a lane, and then the remaining files one by one."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        return lane(nodeid)

    @override
    def schedule(self) -> None:
        first = self.collection is None
        if first:
            self.workqueue = Work()
        super().schedule()

    @override
    def _reschedule(self, node: Any) -> None:
        # A process starts its last test only if it has more. xdist assigns more when two tests are
        # left: if the first is slow, the assigned lane waits while another process is free.
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


class Work(OrderedDict[str, dict[str, bool]]):
    """A work queue that gives the lanes first, in their order, and then the largest files."""

    @override
    def popitem(self, last: bool = True) -> tuple[str, dict[str, bool]]:
        names = [own[0] for own in LANES if own[0] in self]
        name = names[0] if names else next(iter(self))
        return name, self.pop(name)
