"""Which resources depend on another one: those whose traffic split or benchmark names it.

`Runtime` updates the map from watch events and requeues the dependents of a changed resource. No
owner reference connects the two. The watch lists every resource at its start, so the map is
complete without further requests.
"""

from collections.abc import Mapping
from typing import Any

from specdec.controller.queue import Key

_REFERENCES = (
    ("networking", "gateway", "split", "modelRef", "name"),
    ("benchmark", "baseline", "modelRef", "name"),
)


class Dependents:
    """The resources that each resource names, as of its last event."""

    def __init__(self) -> None:
        self._named: dict[Key, set[Key]] = {}

    def update(self, key: Key, body: Mapping[str, Any], *, deleted: bool = False) -> None:
        """Record an event of the resource `key`."""
        named = set() if deleted else {(key[0], name) for name in _names(body)}
        if named:
            self._named[key] = named
        else:
            self._named.pop(key, None)

    def of(self, key: Key) -> list[Key]:
        """The resources that name this one."""
        return [dependent for dependent, named in self._named.items() if key in named]


def _names(body: Mapping[str, Any]) -> set[str]:
    """The names in the resource's spec; none where the spec is invalid."""
    names: set[str] = set()
    for path in _REFERENCES:
        value: Any = body.get("spec")
        for field in path:
            value = value.get(field) if isinstance(value, Mapping) else None
        if isinstance(value, str):
            names.add(value)
    return names
