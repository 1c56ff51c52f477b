"""Everything that only some resources have beside their servers and Services."""

from collections.abc import Iterable, Mapping
from typing import Any

from specdec.api import names
from specdec.api.kinds import EXTRAS
from specdec.api.model import SpeculativeModel
from specdec.desired import disruption, policy, routes, scaling


def objects(model: SpeculativeModel, share: int = 0) -> tuple[dict[str, Any], ...]:
    """What the resource asks for; `share` is that of `routes.objects`."""
    builders = (scaling, disruption, policy)
    found = tuple(body for builder in builders for body in builder.objects(model))
    return found + routes.objects(model, share)


def kinds(model: SpeculativeModel) -> set[str]:
    """The kinds that the resource asks for."""
    return {str(body["kind"]) for body in objects(model)}


def remembered(services: Iterable[Mapping[str, Any]]) -> set[str]:
    """The kinds that the Services say there may be: what the resource asked for before.

    So that nothing has to be looked for that never was: most resources have no extras, and most
    clusters do not know all of the kinds.
    """
    notes = [s["metadata"].get("annotations", {}).get(names.KINDS, "") for s in services]
    return {kind for note in notes for kind in note.split(",") if kind in EXTRAS}


def note(found: Iterable[str]) -> dict[str, str]:
    """The annotation that remembers kinds; none without any."""
    listed = ",".join(sorted(found))
    return {names.KINDS: listed} if listed else {}
