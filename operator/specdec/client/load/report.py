"""The report of a benchmark as immutable values, and its JSON document.

`summary` creates it; the exports and the benchmark Job read it. Field names are those of the
document, which `docs/cli.md` describes. Latencies are in milliseconds, throughputs per second, and
speed-ups in percent of the baseline (100 is equal speed). Values that were not measured are None.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FORMAT = "specdec.dev/bench/v1"
Ended = Literal["completed", "interrupted", "unreachable"]


@dataclass(frozen=True)
class Latency:
    """The distribution in milliseconds over all answered requests (for chunks, over all gaps)."""

    avg: float
    min: float
    max: float
    p25: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Interval:
    """A value in percent with the bounds of its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Arm:
    """One draft length at one level.

    Attributes:
        draft_tokens: per round, as requested; 0 is the baseline, None the server's default.
        requests, errors: number of requests, and of requests without an answer.
        first_error: message of the first error.
        seconds: time that a client spent on this arm, the mean over the clients.
        request_throughput, output_token_throughput: per second of that time.
        output_tokens: of all answers; reported by the server if `output_tokens_counted`,
            otherwise as requested.
        request_latency: until the last chunk.
        time_to_first_token: until the first chunk with text; None unless streamed.
        inter_token_latency: time after the first token, divided by the tokens after it.
        inter_chunk_latency: between the chunks of an answer; a chunk has the tokens of a round.
        acceptance_percent: accepted of drafted tokens.
        tokens_per_round: output tokens per round (one draft and one verification step).
        acceptance_by_position: percent of rounds that accepted their first, second ... draft
            token, among the rounds that drafted a token at that position.
        speedup_percent: speed relative to the baseline for the same prompts.
        energy_joules: energy of the server's GPUs during this arm, including idle power.
    """

    draft_tokens: int | None
    requests: int
    errors: int
    first_error: str | None
    seconds: float
    request_throughput: float
    output_token_throughput: float
    output_tokens: int
    output_tokens_counted: bool
    request_latency: Latency | None
    time_to_first_token: Latency | None
    inter_token_latency: Latency | None
    inter_chunk_latency: Latency | None
    acceptance_percent: float | None
    tokens_per_round: float | None
    acceptance_by_position: tuple[float, ...]
    speedup_percent: Interval | None
    energy_joules: float | None

    @property
    def joules_per_token(self) -> float | None:
        """The energy per output token, if known."""
        if self.energy_joules is None or not self.output_tokens:
            return None
        return self.energy_joules / self.output_tokens


@dataclass(frozen=True)
class Level:
    """The results for one number of concurrent clients.

    Attributes:
        baseline: None in a run without a baseline, which shows no speed-up.
        recommended_draft_tokens: of the fastest arm, 0 for the baseline; None if that arm uses the
            server's default, if no arms could be compared, or if no difference was measured.
    """

    concurrency: int
    baseline: Arm | None
    speculative: tuple[Arm, ...]
    recommended_draft_tokens: int | None

    @property
    def arms(self) -> tuple[Arm, ...]:
        """All arms, the baseline first."""
        return ((self.baseline,) if self.baseline else ()) + self.speculative

    @property
    def best(self) -> Arm | None:
        """The fastest speculative arm; None without a comparison."""
        compared = [arm for arm in self.speculative if arm.speedup_percent is not None]
        return max(compared, key=_speedup, default=None)


@dataclass(frozen=True)
class Report:
    """A complete or interrupted run.

    Attributes:
        format: version of this document.
        url, model: of the server.
        baseline_url, baseline_model: of the baseline's own server; None if it has none.
        started_at: RFC 3339, UTC.
        seconds: duration of the run, with warm-up.
        ended: how the run ended: completed, interrupted or unreachable.
        message: why the run did not complete.
        requests, errors, error_percent: over all arms and levels, without warm-up.
        error_limit_percent: maximum error rate.
        failed: the error rate exceeded the limit.
        output_tokens_per_request: as requested.
        seed, confidence_percent, resamples: as requested.
        streamed: whether answers came in chunks; time to first token requires that.
        levels: in the order of measurement; an interrupted level is partial.
        recommended_draft_tokens: by the geometric mean of speed-ups over the levels; None if the
            fastest arm uses the server's default, or if no difference was measured.
        undecided_draft_tokens: the arms between which no difference was measured, the fastest
            first; their intervals overlap. Empty if there is a recommendation.
        subject: facts of the measured resource by their titles; empty if it is not known.
    """

    format: str
    url: str
    model: str
    started_at: str
    seconds: float
    ended: Ended
    message: str
    requests: int
    errors: int
    error_percent: float
    error_limit_percent: float
    failed: bool
    output_tokens_per_request: int
    seed: int
    confidence_percent: float
    resamples: int
    streamed: bool
    levels: tuple[Level, ...]
    recommended_draft_tokens: int | None
    undecided_draft_tokens: tuple[int | None, ...] = ()
    subject: Mapping[str, str] = field(default_factory=dict)
    baseline_url: str | None = None
    baseline_model: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The JSON document, with the names of the fields as keys."""
        document: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return document

    @classmethod
    def from_json(cls, document: Any) -> "Report":
        """Parse a JSON document.

        Raises:
            ValueError: the document is invalid; with the fields and their errors.
        """
        report: Report = _adapter().validate_python(document)
        return report


def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Report)


def _speedup(arm: Arm) -> float:
    return arm.speedup_percent.value if arm.speedup_percent else 0.0
