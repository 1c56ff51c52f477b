"""What a benchmark found: frozen values, and their JSON document.

Field names are those of the document; `docs/cli.md` describes it. Latencies are milliseconds,
throughputs per second, speed-ups percent of the baseline (100 is as fast). What could not be
measured is None.
"""

from dataclasses import dataclass
from typing import Any, Literal

FORMAT = "specdec.dev/bench/v1"
Ended = Literal["completed", "interrupted", "unreachable"]


@dataclass(frozen=True)
class Latency:
    """Milliseconds over all requests that were answered (of chunks: over all gaps)."""

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
    """A value in percent between the bounds of its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Arm:
    """One draft length at one level.

    Attributes:
        draft_tokens: asked for; 0 is the baseline, None what the server chose.
        requests, errors: sent, and those among them without an answer.
        first_error: what was said about the first of those.
        seconds: while requests of this arm were sent.
        request_throughput, output_token_throughput: per second of those.
        output_tokens: of all answers; counted by the server where `output_tokens_counted`, else
            by what was asked for.
        request_latency: until the last chunk.
        time_to_first_token: until the first chunk that carries text; None unless streamed.
        inter_token_latency: of each answer, time after the first token over the tokens after it.
        inter_chunk_latency: between the chunks of an answer; a round's tokens come together.
        acceptance_percent: accepted of drafted tokens.
        tokens_per_round: output tokens of one draft and one verification.
        acceptance_by_position: share of rounds that reached to the first, second ... draft token
            accepted, out of those that offered so many; percent.
        speedup_percent: speed of an answer against the baseline's to the same prompts.
        energy_joules: what the server's GPUs took meanwhile, idle power included.
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
        """Energy of one output token, where it is known."""
        if self.energy_joules is None or not self.output_tokens:
            return None
        return self.energy_joules / self.output_tokens


@dataclass(frozen=True)
class Level:
    """One number of clients at once.

    Attributes:
        recommended_draft_tokens: the fastest of the arms, 0 when the baseline is; None when that
            is the server's own choice or nothing could be compared.
    """

    concurrency: int
    baseline: Arm
    speculative: tuple[Arm, ...]
    recommended_draft_tokens: int | None

    @property
    def arms(self) -> tuple[Arm, ...]:
        """All of them, the baseline first."""
        return (self.baseline, *self.speculative)

    @property
    def best(self) -> Arm | None:
        """The fastest speculative arm, None without a comparison."""
        compared = [arm for arm in self.speculative if arm.speedup_percent is not None]
        return max(compared, key=_speedup, default=None)


@dataclass(frozen=True)
class Report:
    """A whole run, or what there was of it.

    Attributes:
        format: version of this document.
        url, model: what was asked.
        started_at: RFC 3339, UTC.
        seconds: the run took, warm-up included.
        ended: why it ended.
        message: what was said when it did not complete.
        requests, errors, error_percent: over all arms and levels, without warm-up.
        error_limit_percent: see `failed`.
        failed: more requests than the limit allows had no answer.
        output_tokens_per_request: asked for.
        seed, confidence_percent, resamples: as asked for.
        streamed: whether answers came in chunks, so that time to first token means something.
        levels: in the order measured; one that was cut off is there with what it had.
        recommended_draft_tokens: by the geometric mean of speed-ups over the levels.
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

    def as_json(self) -> dict[str, Any]:
        """The document: plain values under the names of the fields."""
        found: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return found

    @classmethod
    def from_json(cls, document: Any) -> "Report":
        """The report that a document describes.

        Raises:
            ValueError: it is none; with the fields and what is wrong with them.
        """
        report: Report = _adapter().validate_python(document)
        return report


def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Report)


def _speedup(arm: Arm) -> float:
    return arm.speedup_percent.value if arm.speedup_percent else 0.0
