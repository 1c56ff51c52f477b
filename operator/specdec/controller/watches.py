"""Whether events arrive: what the API server has, held against what the watches have shown.

kopf can lose the watch of a definition that was deleted and installed again, and lives on without
it. An idle cluster and a dead watch look alike from inside a stream; they differ in the objects.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# So many comparisons in a row have to show the same object as missed: four minutes by default.
# kopf gives up a silent stream after 70 seconds, and repeats a failed request for about a minute.
MISSED = 5
# From this comparison on, what was missed is reconciled without its event.
LATE = 2


@dataclass
class _Missed:
    what: str
    times: int = 0


@dataclass
class Watches:
    """The newest resource version that events have shown of each object, by uid.

    Times are seconds of any one clock that does not go back.
    """

    _seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    _missed: dict[str, _Missed] = field(default_factory=dict)

    def see(self, meta: Mapping[str, Any], now: float, *, deleted: bool = False) -> None:
        """An event of an object, by its metadata."""
        uid = meta["uid"]
        self._missed.pop(uid, None)
        if deleted:
            self._seen.pop(uid, None)
        else:
            self._seen[uid] = (meta["resourceVersion"], now)

    def compare(self, kind: str, listed: Iterable[Mapping[str, Any]], asked: float) -> list[str]:
        """Count what no event has shown of a list that was asked for at `asked`.

        Returns:
            The uids that have been missed for `LATE` comparisons or more.
        """
        late = []
        for meta in listed:
            uid = meta["uid"]
            version, at = self._seen.get(uid, ("", -1.0))
            # What arrived after the list was asked for may be newer than the list.
            if version == meta["resourceVersion"] or at >= asked:
                self._missed.pop(uid, None)
                continue
            where = f"{meta.get('namespace', '')}/{meta['name']}"
            missed = self._missed.setdefault(uid, _Missed(f"{kind} {where}"))
            missed.times += 1
            if missed.times >= LATE:
                late.append(uid)
        return late

    def keep(self, uids: Iterable[str], asked: float) -> None:
        """Drop other objects that were seen before `asked`: the event of an end may be lost."""
        kept = set(uids)
        for uid in [u for u, (_, at) in self._seen.items() if u not in kept and at < asked]:
            del self._seen[uid]
        for uid in self._missed.keys() - kept:
            del self._missed[uid]

    @property
    def deaf(self) -> str | None:
        """The object whose change no watch shows; None where all watches live, for all we know."""
        return next((m.what for m in self._missed.values() if m.times >= MISSED), None)
