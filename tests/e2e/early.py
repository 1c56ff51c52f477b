"""Resources that start while earlier tests run: `@pytest.mark.early(body)` on a test.

Most tests are shorter than the start of a pod, and a starting pod mostly waits. The test also
applies the resource itself, and then owns it.
"""

import os
from collections.abc import Iterator, Sequence

import pytest

from e2e.world import Object, World
from support.lanes import lane

# Number of following tests. More would keep more idle servers, whose probes cost processor time.
_TESTS = 2


class EarlyResources:
    """Applies the resources of the next tests, each only once: a test may change its resource."""

    def __init__(self, world: World, items: Sequence[pytest.Item]) -> None:
        self._world = world
        self._items = [item for item in items if item.get_closest_marker("e2e")]
        self._is_worker = "PYTEST_XDIST_WORKER" in os.environ
        self._applied: set[str] = set()

    def apply_next(self, item: pytest.Item) -> None:
        """Apply the resources in the `early` marks of the tests after this test."""
        # In a parallel run, another process runs the tests of the other lanes.
        same = lane(item.nodeid)
        items = [i for i in self._items if not self._is_worker or lane(i.nodeid) == same]
        first = items.index(item) + 1
        for body in _bodies(items[first : first + _TESTS]):
            name = body["metadata"]["name"]
            if name not in self._applied:
                self._applied.add(name)
                self._world.apply(body, keep=True)


def _bodies(items: Sequence[pytest.Item]) -> Iterator[Object]:
    for item in items:
        for mark in item.iter_markers("early"):
            yield from mark.args
