"""Resources that start while earlier tests run: `@early(body)` on a test.

A pod takes longer to start than most tests take, and waits most of that time. The test applies the
resource itself as well, and owns it.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from e2e.world import Object, World

# Tests ahead. More of them would keep more idle servers on the node, whose probes cost time.
_TESTS = 2
MARK = "early"


def early(*bodies: Object) -> pytest.MarkDecorator:
    """Apply resources up to two tests before the marked one."""
    return cast("pytest.MarkDecorator", getattr(pytest.mark, MARK)(*bodies))


class Early:
    """Applies the resources of the next tests, each once."""

    def __init__(self, world: World, items: Sequence[pytest.Item]) -> None:
        self._world = world
        self._items = [item for item in items if "e2e" in item.path.parts]
        self._applied: set[str] = set()

    def before(self, item: pytest.Item) -> None:
        """Apply what the tests after this one are marked with."""
        first = self._items.index(item) + 1
        for body in _bodies(self._items[first : first + _TESTS]):
            name = body["metadata"]["name"]
            if name not in self._applied:
                self._applied.add(name)
                self._world.apply(body, keep=True)


def _bodies(items: Sequence[pytest.Item]) -> Iterator[Object]:
    for item in items:
        for mark in item.iter_markers(MARK):
            yield from mark.args
