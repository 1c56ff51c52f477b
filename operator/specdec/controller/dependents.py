"""Which resources depend on another one: those whose traffic split names it.

`Runtime` updates the map from watch events and requeues the dependents of a changed resource. No
owner reference connects the two. The watch lists every resource at its start, so the map is
complete without further requests.
"""

from collections.abc import Mapping
from typing import Any

from specdec.controller.queue import Key


class Dependents:
    """The resource that each traffic split names, as of its last event."""

    def __init__(self) -> None:
        self._split_targets: dict[Key, Key] = {}

    def update(self, key: Key, body: Mapping[str, Any], *, deleted: bool = False) -> None:
        """Record an event of the resource `key`."""
        name = None if deleted else _split_target(body)
        if name is None:
            self._split_targets.pop(key, None)
        else:
            self._split_targets[key] = (key[0], name)

    def of(self, key: Key) -> list[Key]:
        """The resources whose split names this one."""
        return [dependent for dependent, target in self._split_targets.items() if target == key]


def _split_target(body: Mapping[str, Any]) -> str | None:
    """The name in the resource's split; None without one or where the spec is invalid."""
    value: Any = body
    for field in ("spec", "networking", "gateway", "split", "modelRef", "name"):
        value = value.get(field) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else None
