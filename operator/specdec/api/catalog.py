"""Published pairs of a target with its draft or heads, from `catalog.yaml`."""

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from specdec.api.tables import table


@dataclass(frozen=True)
class Pair:
    """One row of the catalogue.

    Attributes:
        target: the repository of the target.
        method: of `spec.speculation`.
        repository: of the draft or heads; None where the target itself has the layers.
        backends: those that load both.
        tokens: the draft length to start with; None for a method that takes none.
        licence: of draft or heads, where the catalogue knows it.
        result: what the source measured.
        source: the address that names the pair.
        checked: the day of the source's state that was read.
    """

    target: str
    method: str
    backends: tuple[str, ...]
    source: str
    checked: str
    repository: str | None = None
    tokens: int | None = None
    licence: str | None = None
    result: str | None = None

    def shown(self) -> dict[str, Any]:
        """The row as JSON, without what it does not state."""
        row = {name: value for name, value in asdict(self).items() if value is not None}
        return {**row, "backends": list(self.backends)}


def _content() -> Any:
    return table("specdec.api", "catalog.yaml")


@cache
def pairs() -> tuple[Pair, ...]:
    """All rows, in the order of the table."""
    content = _content()
    sources = content["sources"]
    return tuple(
        Pair(
            target=row["target"],
            method=row["method"],
            backends=tuple(row["backends"]),
            source=sources[row["source"]]["url"],
            checked=sources[row["source"]]["checked"],
            repository=row.get("from"),
            tokens=row.get("tokens"),
            licence=row.get("license"),
            result=row.get("result"),
        )
        for row in content["pairs"]
    )


def of(target: str) -> tuple[Pair, ...]:
    """The rows of a repository; the hub does not distinguish upper and lower case."""
    return tuple(pair for pair in pairs() if pair.target.lower() == target.lower())


def like(text: str) -> tuple[Pair, ...]:
    """The rows whose target contains a text."""
    return tuple(pair for pair in pairs() if text.lower() in pair.target.lower())


def place(method: str) -> tuple[str, ...]:
    """The keys from the block of a method to the source of its draft or heads."""
    return tuple(_content()["places"].get(method, ("checkpoint",)))


def tokens(pair: Pair, backend: str) -> int | None:
    """The draft length to start with on a backend."""
    tree: int | None = _content()["trees"].get(backend, {}).get(pair.method)
    return tree or pair.tokens
