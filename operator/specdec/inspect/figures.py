"""What a server does now: two readings of its metrics, and the figures between them."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from specdec.client.errors import RefusedError
from specdec.client.names import BLS

# As the parser has it: with `_total` behind every counter.
_REQUESTS = "nv_inference_request_success_total"
# What clients ask for; the models behind these count the very same requests again.
_ASKED = frozenset({BLS, "ensemble"})
_COUNTERS = {
    "specdec_rounds_total": "rounds",
    "specdec_draft_tokens_total": "drafted",
    "specdec_accepted_tokens_total": "accepted",
    "specdec_generated_tokens_total": "generated",
    "specdec_fallback_total": "fallbacks",
}
_GAUGES = {"specdec_requests_in_flight": "in_flight", "specdec_draft_length": "draft_length"}


@dataclass(frozen=True)
class Reading:
    """The metrics of a server at one moment.

    Attributes:
        at: seconds of a clock that only goes forward.
        totals: counts since the server started, by short names; one that it lacks is absent.
        levels: gauges likewise; `kv` is the fullest cache, 0 to 1.
    """

    at: float
    totals: Mapping[str, float]
    levels: Mapping[str, float]


@dataclass(frozen=True)
class Figures:
    """What a server does; None where it does not tell, or nothing happened to measure.

    Attributes:
        acceptance_percent: share of the draft tokens that were accepted.
        tokens_per_round: what one draft and one verification yielded: 1 and the accepted ones.
        draft_length: draft tokens a round, as the server chooses now.
        in_flight, waiting: requests that are being answered, and in front of the model.
        requests_per_second, tokens_per_second: answers that ended, and their tokens.
        fallbacks: answers that went on without speculation.
        kv_percent: use of the fullest key/value cache.
    """

    acceptance_percent: float | None = None
    tokens_per_round: float | None = None
    draft_length: float | None = None
    in_flight: float | None = None
    waiting: float | None = None
    requests_per_second: float | None = None
    tokens_per_second: float | None = None
    fallbacks: float | None = None
    kv_percent: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The figures by their names."""
        return asdict(self)


def reading(text: str, at: float) -> Reading:
    """What a page of Triton's metrics says; raises RefusedError if it is none."""
    try:
        samples = list(_samples(text))
    except ValueError as error:
        raise RefusedError(f"what answers is no metrics endpoint ({error})") from error
    totals: dict[str, float] = {}
    levels: dict[str, float] = {}
    for sample in samples:
        if sample.name in _COUNTERS:
            name = _COUNTERS[sample.name]
            totals[name] = totals.get(name, 0.0) + sample.value
        elif sample.name in _GAUGES:
            name = _GAUGES[sample.name]
            levels[name] = levels.get(name, 0.0) + sample.value
    # A server on which nobody fell back yet has no such counter.
    if "rounds" in totals:
        totals.setdefault("fallbacks", 0.0)
    _of_triton(samples, totals, levels)
    return Reading(at, totals, levels)


def figures(before: Reading | None, after: Reading) -> Figures:
    """What happened between two readings; only what stands now without the first.

    Counts that went down are those of another process: the server started again in between.
    """
    levels = after.levels
    still = Figures(
        draft_length=levels.get("draft_length"),
        in_flight=levels.get("in_flight"),
        waiting=levels.get("waiting"),
        kv_percent=100 * levels["kv"] if "kv" in levels else None,
    )
    if before is None:
        return still
    grown = {name: value - before.totals.get(name, 0.0) for name, value in after.totals.items()}
    seconds = after.at - before.at
    if seconds <= 0 or any(value < 0 for value in grown.values()):
        return still
    rounds, drafted = grown.get("rounds", 0.0), grown.get("drafted", 0.0)
    accepted = grown.get("accepted", 0.0)
    return Figures(
        acceptance_percent=100 * accepted / drafted if drafted else None,
        tokens_per_round=1 + accepted / rounds if rounds else None,
        draft_length=still.draft_length,
        in_flight=still.in_flight,
        waiting=still.waiting,
        requests_per_second=_rate(grown.get("requests"), seconds),
        tokens_per_second=_rate(grown.get("generated"), seconds),
        fallbacks=grown.get("fallbacks"),
        kv_percent=still.kv_percent,
    )


def _rate(count: float | None, seconds: float) -> float | None:
    return None if count is None else count / seconds


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from family.samples


def _of_triton(samples: list[Sample], totals: dict[str, float], levels: dict[str, float]) -> None:
    """What Triton counts of every model: of those that clients ask, else of the engine."""
    models = {sample.labels.get("model") for sample in samples if sample.name == _REQUESTS}
    asked = _ASKED & models or {"tensorrt_llm"}
    for sample in samples:
        match sample.name, sample.labels:
            case name, {"model": model} if name == _REQUESTS and model in asked:
                totals["requests"] = totals.get("requests", 0.0) + sample.value
            case "nv_inference_pending_request_count", {"model": model} if model in asked:
                levels["waiting"] = levels.get("waiting", 0.0) + sample.value
            case "nv_trt_llm_kv_cache_block_metrics", {"kv_cache_block_type": "fraction"}:
                levels["kv"] = max(levels.get("kv", 0.0), sample.value)
            case "nv_trt_llm_request_metrics", {"model": "tensorrt_llm", "request_type": "active"}:
                # Of a server without a BLS: its engine knows what it works on.
                levels.setdefault("in_flight", sample.value)
            case _:
                pass
