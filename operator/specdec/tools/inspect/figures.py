"""Compute what a server does now from two readings of its Prometheus metrics.

`top` calls it for each pod. It is pure: it parses pages that others have fetched.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from specdec.client.errors import RefusedError
from specdec.triton.model_names import BLS, ENSEMBLE, TARGET

# The parser appends `_total` to the name of every counter.
_REQUESTS = "nv_inference_request_success_total"
# The models that clients call. The models behind them count the same requests again.
_ENTRY_MODELS = frozenset({BLS, ENSEMBLE})
_COUNTERS = {
    "specdec_rounds_total": "rounds",
    "specdec_draft_tokens_total": "drafted",
    "specdec_accepted_tokens_total": "accepted",
    "specdec_generated_tokens_total": "generated",
    "specdec_fallback_total": "fallbacks",
}
# Counters with the label `source`.
_BY_SOURCE = {
    "specdec_draft_tokens_by_source_total": "drafted",
    "specdec_accepted_tokens_by_source_total": "accepted",
}
_GAUGES = {"specdec_requests_in_flight": "in_flight", "specdec_draft_length": "draft_length"}


@dataclass(frozen=True)
class Reading:
    """The metrics of a server at one moment.

    Attributes:
        at: time of the reading in seconds of a monotonic clock.
        totals: counters since the server's start by short name, without those that it lacks. The
            name of a counter by source ends with the source, as in `drafted lookup`.
        levels: gauges by short name; `kv` is the use of the fullest cache, 0 to 1.
    """

    at: float
    totals: Mapping[str, float]
    levels: Mapping[str, float]


@dataclass(frozen=True)
class SourceFigures:
    """The drafts of one source.

    Attributes:
        share_percent: the source's share of all draft tokens.
        acceptance_percent: share of its draft tokens that were accepted.
    """

    share_percent: float
    acceptance_percent: float


@dataclass(frozen=True)
class Figures:
    """What a server does between two readings.

    A figure is None if the server lacks the metric. Acceptance and tokens per round are also None
    if there was no draft token or no round between the readings.

    Attributes:
        acceptance_percent: share of the draft tokens that were accepted.
        tokens_per_round: tokens per verification step: the accepted draft tokens plus one.
        draft_length: draft tokens per round that the server uses now.
        in_flight, waiting: requests in progress, and requests in the model's queue.
        requests_per_second, tokens_per_second: rates of finished requests and generated tokens.
        fallbacks: requests that need target-only decoding, and prompts whose draft call failed.
        kv_percent: use of the fullest key/value cache.
        sources: what drafted, such as `model` or `lookup`, the most draft tokens first.
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
    sources: Mapping[str, SourceFigures] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The figures by name."""
        return asdict(self)


def reading(text: str, at: float) -> Reading:
    """Parse a page of Triton's metrics; raises RefusedError if it is not one."""
    try:
        samples = list(_samples(text))
    except ValueError as error:
        raise RefusedError(f"the response is not a page of metrics ({error})") from error
    totals: dict[str, float] = {}
    levels: dict[str, float] = {}
    for sample in samples:
        if sample.name in _COUNTERS:
            name = _COUNTERS[sample.name]
            totals[name] = totals.get(name, 0.0) + sample.value
        elif sample.name in _BY_SOURCE:
            name = f"{_BY_SOURCE[sample.name]} {sample.labels.get('source', '')}"
            totals[name] = totals.get(name, 0.0) + sample.value
        elif sample.name in _GAUGES:
            name = _GAUGES[sample.name]
            levels[name] = levels.get(name, 0.0) + sample.value
    # The counter is absent until the first fallback.
    if "rounds" in totals:
        totals.setdefault("fallbacks", 0.0)
    _add_triton_metrics(samples, totals, levels)
    return Reading(at, totals, levels)


def figures(before: Reading | None, after: Reading) -> Figures:
    """The figures for the time between two readings; without the first only the gauges.

    A counter that went down shows that the server restarted in between. Then the first reading is
    ignored.
    """
    levels = after.levels
    gauges = Figures(
        draft_length=levels.get("draft_length"),
        in_flight=levels.get("in_flight"),
        waiting=levels.get("waiting"),
        kv_percent=100 * levels["kv"] if "kv" in levels else None,
    )
    if before is None:
        return gauges
    growth = {name: value - before.totals.get(name, 0.0) for name, value in after.totals.items()}
    seconds = after.at - before.at
    if seconds <= 0 or any(value < 0 for value in growth.values()):
        return gauges
    rounds, drafted = growth.get("rounds", 0.0), growth.get("drafted", 0.0)
    accepted = growth.get("accepted", 0.0)
    return Figures(
        acceptance_percent=100 * accepted / drafted if drafted else None,
        tokens_per_round=1 + accepted / rounds if rounds else None,
        draft_length=gauges.draft_length,
        in_flight=gauges.in_flight,
        waiting=gauges.waiting,
        requests_per_second=_rate(growth.get("requests"), seconds),
        tokens_per_second=_rate(growth.get("generated"), seconds),
        fallbacks=growth.get("fallbacks"),
        kv_percent=gauges.kv_percent,
        sources=_sources(growth),
    )


def _sources(growth: Mapping[str, float]) -> dict[str, SourceFigures]:
    """The figures of each source that drafted tokens."""
    counts = {
        source: (count, growth.get(f"accepted {source}", 0.0))
        for name, count in growth.items()
        for kind, _, source in [name.partition(" ")]
        if kind == "drafted" and source and count > 0
    }
    drafted = sum(count for count, _ in counts.values())
    return {
        source: SourceFigures(100 * count / drafted, 100 * accepted / count)
        for source, (count, accepted) in sorted(counts.items(), key=lambda item: -item[1][0])
    }


def _rate(count: float | None, seconds: float) -> float | None:
    return None if count is None else count / seconds


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from family.samples


def _add_triton_metrics(
    samples: list[Sample], totals: dict[str, float], levels: dict[str, float]
) -> None:
    """Add Triton's own metrics of the models that clients call, or else of the engine."""
    models = {sample.labels.get("model") for sample in samples if sample.name == _REQUESTS}
    entry_models = _ENTRY_MODELS & models or {TARGET}
    for sample in samples:
        match sample.name, sample.labels:
            case name, {"model": model} if name == _REQUESTS and model in entry_models:
                totals["requests"] = totals.get("requests", 0.0) + sample.value
            case "nv_inference_pending_request_count", {"model": model} if model in entry_models:
                levels["waiting"] = levels.get("waiting", 0.0) + sample.value
            case "nv_trt_llm_kv_cache_block_metrics", {"kv_cache_block_type": "fraction"}:
                levels["kv"] = max(levels.get("kv", 0.0), sample.value)
            case "nv_trt_llm_request_metrics", {"model": model, "request_type": "active"} if (
                model in entry_models
            ):
                # A server without a BLS; the engine counts its own requests.
                levels.setdefault("in_flight", sample.value)
            case _:
                pass
