"""Which resources have to be looked at because another one changed: their routes name it.

A resource is no child of the one that sends it requests, so no owner reference leads back. The
watch shows every resource when it starts, which makes this complete without a request.
"""

from collections.abc import Mapping
from typing import Any

from specdec.controller.queue import Key


class Followers:
    """Who names whom, as the watch last showed it."""

    def __init__(self) -> None:
        self._named: dict[Key, Key] = {}

    def see(self, key: Key, body: Mapping[str, Any], *, deleted: bool = False) -> None:
        """A resource appeared, changed or went."""
        name = None if deleted else _named(body)
        if name is None:
            self._named.pop(key, None)
        else:
            self._named[key] = (key[0], name)

    def of(self, key: Key) -> list[Key]:
        """The resources that name this one."""
        return [follower for follower, named in self._named.items() if named == key]


def _named(body: Mapping[str, Any]) -> str | None:
    """What the split of a resource names; it may be one that the operator cannot read."""
    found: Any = body
    for part in ("spec", "networking", "gateway", "split", "modelRef", "name"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else None
