"""Counters of a served model, read from Triton's metrics endpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from specdec.client.errors import RefusedError, UnreachableError

_SECONDS = 5.0


@dataclass(frozen=True)
class SpeculationTotals:
    """What the server's rounds did: totals since it started, or a difference of two readings.

    One round is one draft and one verification; it yields what was accepted and one more token.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    generated: int = 0

    def __sub__(self, earlier: "SpeculationTotals") -> "SpeculationTotals":
        return SpeculationTotals(
            self.rounds - earlier.rounds,
            self.drafted - earlier.drafted,
            self.accepted - earlier.accepted,
            self.generated - earlier.generated,
        )


def read(url: str) -> SpeculationTotals:
    """The totals of the server whose metrics are at `url` (`host:port`); see `totals`."""
    return speculation(totals(url))


def totals(url: str) -> dict[str, float]:
    """Every sample of the metrics at `url` (`host:port`), summed over its label sets.

    A counter is there by the server's name for it, and with `_total` behind it.

    Raises:
        UnreachableError: nobody answers there.
        RefusedError: what answers speaks no Prometheus text.
    """
    try:
        with urlopen(f"http://{url}/metrics", timeout=_SECONDS) as reply:
            text = reply.read().decode()
        return summed(text)
    except (URLError, HTTPException, OSError) as error:
        raise UnreachableError(f"no metrics at {url} ({error}); check the address") from error
    except ValueError as error:
        raise RefusedError(f"what answers at {url} is no metrics endpoint ({error})") from error


def parse(text: str) -> SpeculationTotals:
    """The totals in a Prometheus exposition; families the server lacks count as 0."""
    return speculation(summed(text))


def summed(text: str) -> dict[str, float]:
    """Every sample of a Prometheus exposition, as `totals` has them; raises ValueError."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
            # The parser has `_total` behind every counter; many of Triton's own have not.
            if family.type == "counter" and sample.name == f"{family.name}_total":
                found[family.name] = found.get(family.name, 0.0) + sample.value
    return found


def speculation(totals: Mapping[str, float]) -> SpeculationTotals:
    """What the server's rounds did, by the totals of its metrics."""

    def total(name: str) -> int:
        return int(totals.get(f"specdec_{name}_total", 0.0))

    return SpeculationTotals(
        rounds=total("rounds"),
        drafted=total("draft_tokens"),
        accepted=total("accepted_tokens"),
        generated=total("generated_tokens"),
    )
