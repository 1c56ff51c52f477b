"""Draft counts and load of a server, from the samples of its metrics page."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceTotals:
    """Draft tokens of a source: draft `model`, `lookup` in the text, `memory` of earlier texts."""

    name: str
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class SpeculationTotals:
    """Speculation counters: totals since the server started, or the difference of two readings.

    One round is one draft and one verification step. It generates the accepted draft tokens and
    one more token. `sources` has only the sources that drafted.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    generated: int = 0
    sources: tuple[SourceTotals, ...] = ()

    def __add__(self, other: "SpeculationTotals") -> "SpeculationTotals":
        return self._combined(other, 1)

    def __sub__(self, earlier: "SpeculationTotals") -> "SpeculationTotals":
        return self._combined(earlier, -1)

    def _combined(self, other: "SpeculationTotals", sign: int) -> "SpeculationTotals":
        return SpeculationTotals(
            self.rounds + sign * other.rounds,
            self.drafted + sign * other.drafted,
            self.accepted + sign * other.accepted,
            self.generated + sign * other.generated,
            _combined(self.sources, other.sources, sign),
        )


@dataclass(frozen=True)
class Load:
    """The load of one server.

    Attributes:
        waiting: requests that wait for others to end.
        running: requests that are being decoded.
        kv_cache: share of the target's cache that is in use, 0 to 1; None if unknown.
    """

    waiting: int
    running: int
    kv_cache: float | None


def _combined(
    sources: tuple[SourceTotals, ...], others: tuple[SourceTotals, ...], sign: int
) -> tuple[SourceTotals, ...]:
    """The sum or the difference of each source that drafted."""
    first, second = ({source.name: source for source in each} for each in (sources, others))
    none = SourceTotals("")
    sums = (
        SourceTotals(
            name,
            first.get(name, none).drafted + sign * second.get(name, none).drafted,
            first.get(name, none).accepted + sign * second.get(name, none).accepted,
        )
        for name in first | second
    )
    return tuple(source for source in sums if source.drafted)
