"""Which tests run side by side: what is started once for many tests is a lane, in one process.

A lane waits for programs most of its time, so that several share two processors. Files that start
nothing are handed out one by one, to whichever process is free.
"""

from collections import OrderedDict
from typing import Any

from typing_extensions import override
from xdist.scheduler import LoadScopeScheduling

# By the start of a test's id; the longest lane first, so that none is left for the end.
_NODE = ("tests/e2e/", "tests/cluster/test_node.py")
# On the same node, in a namespace of their own. `test_whole_run.py` needs the statuses that the
# other files of tests/e2e cause, so these are in one lane with it.
_SECOND = tuple(
    f"tests/e2e/test_{name}.py"
    for name in (
        "certify",
        "install",
        "openai",
        "page_commands",
        "prune",
        "pytorch",
        "readiness",
        "sidecars",
    )
)
_OPERATOR = ("tests/controlplane/", "tests/cluster/test_control_plane.py")
_SERVERS = ("tests/triton/",)
_RELEASE = ("tests/chart/",)
# In a process of their own, so with an operator and a control plane of their own. With the rest of
# the folder they would be the longest lane.
_SERVICE = tuple(
    f"tests/controlplane/test_{name}.py" for name in ("retention", "scaling", "service")
)
# Most of these use the control plane without an operator, which stops when they have ended.
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
        "watches",
    )
)
LANES = (_NODE, _SECOND, _OPERATOR, _SERVERS, _SERVICE, _DEFINITION, _RELEASE)


def lane(nodeid: str) -> str:
    """The name of what runs in one process and in order with this test."""
    file = nodeid.partition("::")[0]
    places = [(place, own[0]) for own in LANES for place in own if file.startswith(place)]
    return max(places, key=lambda pair: len(pair[0]), default=(file, file))[1]


class Lanes(LoadScopeScheduling):  # type: ignore[misc]  # its package has no types
    """Gives each process a lane, and then what is left, file by file."""

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
        # A process does not start its last test before it has more. xdist gives it more when two
        # are left: if one of these is slow, the lane waits for it while another process is free.
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


class Work(OrderedDict[str, dict[str, bool]]):
    """Work of which the lanes are taken first, in their order, and then the largest files."""

    @override
    def popitem(self, last: bool = True) -> tuple[str, dict[str, bool]]:
        names = [own[0] for own in LANES if own[0] in self]
        name = names[0] if names else next(iter(self))
        return name, self.pop(name)
