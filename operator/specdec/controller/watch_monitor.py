"""Detect watches that have died without an error.

`Runtime` records every watch event here and lists all objects now and then. A dead watch and an
idle cluster both send no events, so `compare` checks whether the listed versions have arrived as
events. For example, kopf can lose the watch of a resource definition that is deleted and installed
again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# A watch is dead if this many comparisons in a row miss the same object: four minutes by default.
# kopf drops a silent connection after 70 seconds, and repeats a failed request for about a minute.
STALLED_AFTER = 5
# Comparisons in a row after which a missed object is reconciled without its event.
RECONCILE_AFTER = 2


@dataclass
class _Missed:
    description: str
    comparisons: int = 0


@dataclass
class WatchMonitor:
    """The newest resource version of each object that an event has shown, by uid.

    Times are seconds of one monotonic clock.
    """

    _versions: dict[str, tuple[str, float]] = field(default_factory=dict)
    _missed: dict[str, _Missed] = field(default_factory=dict)

    def record(self, meta: Mapping[str, Any], now: float, *, deleted: bool = False) -> None:
        """Record an event of an object, given its metadata."""
        uid = meta["uid"]
        self._missed.pop(uid, None)
        if deleted:
            self._versions.pop(uid, None)
        else:
            self._versions[uid] = (meta["resourceVersion"], now)

    def compare(
        self, kind: str, listed: Iterable[Mapping[str, Any]], requested: float
    ) -> list[str]:
        """Compare a list of objects, requested at the given time, with the recorded events.

        Returns:
            The uids of objects whose event is missing for `RECONCILE_AFTER` comparisons or more.
        """
        overdue = []
        for meta in listed:
            uid = meta["uid"]
            version, recorded = self._versions.get(uid, ("", -1.0))
            # An event that arrived after the request may be newer than the list.
            if version == meta["resourceVersion"] or recorded >= requested:
                self._missed.pop(uid, None)
                continue
            name = f"{meta.get('namespace', '')}/{meta['name']}"
            missed = self._missed.setdefault(uid, _Missed(f"{kind} {name}"))
            missed.comparisons += 1
            if missed.comparisons >= RECONCILE_AFTER:
                overdue.append(uid)
        return overdue

    def retain(self, uids: Iterable[str], requested: float) -> None:
        """Drop objects that are missing from a full list, in case their deletion event was lost.

        An object that an event has shown since the list was requested is newer and stays.
        """
        listed = set(uids)
        versions = self._versions.items()
        for uid in [u for u, (_, at) in versions if u not in listed and at < requested]:
            del self._versions[uid]
        for uid in self._missed.keys() - listed:
            del self._missed[uid]

    @property
    def stale_object(self) -> str | None:
        """An object whose changes no watch reports; None if all watches seem alive."""
        missed = self._missed.values()
        return next((m.description for m in missed if m.comparisons >= STALLED_AFTER), None)
