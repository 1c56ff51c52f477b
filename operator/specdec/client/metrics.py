"""Read the speculation counters of a served model from a server's metrics endpoint.

Verification, the benchmark and the demo use it. Counters that a server lacks are 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from specdec.client.errors import RefusedError, UnreachableError

_SECONDS = 5.0
_OWN = "specdec_draft_tokens_total"
# Counters of `trtllm-serve`: drafted and accepted tokens in two spellings, and generated tokens.
_DRAFTS = tuple(
    (f"trtllm_spec_decode_{drafted}_total", f"trtllm_spec_decode_{accepted}_total")
    for drafted, accepted in (
        ("drafted_tokens", "accepted_tokens"),
        ("num_draft_tokens", "num_accepted_tokens"),
    )
)
_GENERATED = "trtllm_generation_tokens_total"
SOURCES = ("model", "lookup", "memory")


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

    def __sub__(self, earlier: "SpeculationTotals") -> "SpeculationTotals":
        return SpeculationTotals(
            self.rounds - earlier.rounds,
            self.drafted - earlier.drafted,
            self.accepted - earlier.accepted,
            self.generated - earlier.generated,
            _grown(self.sources, earlier.sources),
        )


def read(url: str) -> SpeculationTotals:
    """The totals of the server whose metrics are at `url` (`host:port`); see `totals`."""
    return speculation(totals(url))


def totals(url: str) -> dict[str, float]:
    """Every sample of the metrics at `url` (`host:port`), summed over its label sets.

    A counter appears twice: with the suffix `_total`, and without it.

    Raises:
        UnreachableError: the connection failed.
        RefusedError: the response is not in the Prometheus text format.
    """
    try:
        with urlopen(f"http://{url}/metrics", timeout=_SECONDS) as reply:
            text = reply.read().decode()
        return summed(text)
    except (URLError, HTTPException, OSError) as error:
        raise UnreachableError(f"no metrics at {url} ({error}); check the address") from error
    except ValueError as error:
        raise RefusedError(
            f"the response of {url} is not in the Prometheus format ({error}); "
            "give the port of Triton's metrics"
        ) from error


def parse(text: str) -> SpeculationTotals:
    """The totals in a Prometheus exposition; a missing counter is 0."""
    return speculation(summed(text))


def summed(text: str) -> dict[str, float]:
    """Every sample of a Prometheus exposition, as `totals` has them; raises ValueError.

    A sample with the label `source` also counts under its name and source, as in `name lookup`.
    """
    totals_by_name: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            totals_by_name[sample.name] = totals_by_name.get(sample.name, 0.0) + sample.value
            if source := sample.labels.get("source"):
                name = f"{sample.name} {source}"
                totals_by_name[name] = totals_by_name.get(name, 0.0) + sample.value
            # The parser adds `_total` to every counter, and many of Triton's names lack it.
            if family.type == "counter" and sample.name == f"{family.name}_total":
                totals_by_name[family.name] = totals_by_name.get(family.name, 0.0) + sample.value
    return totals_by_name


def speculation(totals: Mapping[str, float]) -> SpeculationTotals:
    """The speculation counters among the totals of a server's metrics."""

    def total(name: str) -> int:
        return int(totals.get(f"specdec_{name}_total", 0.0))

    drafted, accepted = _drafts(totals)
    return SpeculationTotals(
        rounds=total("rounds"),
        drafted=total("draft_tokens") + drafted,
        accepted=total("accepted_tokens") + accepted,
        generated=total("generated_tokens") + int(totals.get(_GENERATED, 0.0)),
        sources=_sources(totals),
    )


def counts_drafts(totals: Mapping[str, float]) -> bool:
    """Whether a server counts draft tokens."""
    return any(name in totals for name, _ in (*_DRAFTS, (_OWN, "")))


def _sources(totals: Mapping[str, float]) -> tuple[SourceTotals, ...]:
    def total(kind: str, source: str) -> int:
        return int(totals.get(f"specdec_{kind}_tokens_by_source_total {source}", 0.0))

    sources = (
        SourceTotals(name, total("draft", name), total("accepted", name)) for name in SOURCES
    )
    return tuple(source for source in sources if source.drafted)


def _grown(
    sources: tuple[SourceTotals, ...], earlier: tuple[SourceTotals, ...]
) -> tuple[SourceTotals, ...]:
    """What each source drafted after an earlier reading."""
    before = {source.name: source for source in earlier}
    differences = (
        SourceTotals(
            source.name,
            source.drafted - before.get(source.name, SourceTotals("")).drafted,
            source.accepted - before.get(source.name, SourceTotals("")).accepted,
        )
        for source in sources
    )
    return tuple(source for source in differences if source.drafted)


def _drafts(totals: Mapping[str, float]) -> tuple[int, int]:
    """Drafted and accepted tokens of `trtllm-serve`.

    A release may have both spellings, and then each counts all tokens, or stays at 0.
    """
    pairs = [tuple(int(totals.get(name, 0.0)) for name in pair) for pair in _DRAFTS]
    drafted, accepted = max(pairs)
    return drafted, accepted
