"""The generations of TensorRT-LLM's LLM API, read from `generations.yaml`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from specdec.api.tables import table
from specdec.api.versions import at_least


@dataclass(frozen=True)
class Spelling:
    """How a generation spells a method; see the head of `generations.yaml`."""

    type: str
    length: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Generation:
    """What the versions from `since` on have; see the head of `generations.yaml`."""

    since: str
    draft_path: str
    methods: Mapping[str, Spelling]
    by_load: bool = False
    acceptance: bool = False
    acceptance_rate: bool = False
    dynamic_tree: bool = False
    suffixes: bool = False
    penalties: bool = False
    adapters: bool = False


@cache
def generations() -> tuple[Generation, ...]:
    """All generations, oldest first."""
    return tuple(
        Generation(
            since=row["since"],
            draft_path=row["draftPath"],
            methods={name: Spelling(**entry) for name, entry in row["methods"].items()},
            by_load=row.get("byLoad", False),
            acceptance=row.get("acceptance", False),
            acceptance_rate=row.get("acceptanceRate", False),
            dynamic_tree=row.get("dynamicTree", False),
            suffixes=row.get("suffixes", False),
            penalties=row.get("penalties", False),
            adapters=row.get("adapters", False),
        )
        for row in table(__package__, "generations.yaml")
    )


def of(version: str) -> Generation:
    """The generation of a version; the oldest one for a version before it."""
    first, *_ = generations()
    return next((g for g in reversed(generations()) if at_least(version, g.since)), first)
