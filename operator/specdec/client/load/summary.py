"""Summarize the samples of a run as a report.

`measurement` calls `report`, also for an interrupted run. The functions are pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from specdec.client.load import statistics
from specdec.client.load.choice import choose
from specdec.client.load.exchange import Sample
from specdec.client.load.report import FORMAT, Arm, Ended, Level, Report
from specdec.client.load.settings import Settings
from specdec.client.metrics import SpeculationTotals, speculation

Totals = Mapping[str, float]
# Joules since the driver started, one sample per GPU; Triton reads it from NVIDIA's DCGM.
_ENERGY = "nv_energy_consumption"


@dataclass(frozen=True)
class Turn:
    """The results of one turn of an arm.

    Attributes:
        seconds: from its start to a client's last answer, the mean over the clients.
        samples: one per request.
        before, after: the server's counters; empty if they cannot be read.
    """

    seconds: float
    samples: Sequence[Sample]
    before: Totals
    after: Totals

    def increase(self, name: str) -> float | None:
        """The increase of a counter; None if it is not known."""
        if name not in self.before or name not in self.after:
            return None
        return self.after[name] - self.before[name]


Turns = Mapping[int | None, Sequence[Turn]]


def report(
    settings: Settings,
    levels: Mapping[int, Turns],
    *,
    url: str,
    started: datetime,
    seconds: float,
    ended: Ended,
    message: str,
    streamed: bool,
    baseline_url: str | None = None,
) -> Report:
    """Create the report of a run, which may be incomplete.

    Args:
        settings: of the run.
        levels: the turns so far, by concurrency and draft length.
        url: of the server.
        started: in UTC.
        seconds: duration of the run.
        ended: how the run ended: completed, interrupted or unreachable.
        message: why it did not complete.
        streamed: whether answers came in chunks.
        baseline_url: of the baseline's own server.
    """
    results = tuple(
        _level(settings, concurrency, turns)
        for concurrency, turns in levels.items()
        if any(turns.values())
    )
    requests = sum(arm.requests for level in results for arm in level.arms)
    errors = sum(arm.errors for level in results for arm in level.arms)
    share = 100 * errors / requests if requests else 0.0
    choice = choose(results)
    return Report(
        format=FORMAT,
        url=url,
        model=settings.model,
        started_at=started.isoformat(timespec="seconds").replace("+00:00", "Z"),
        seconds=seconds,
        ended=ended,
        message=message,
        requests=requests,
        errors=errors,
        error_percent=share,
        error_limit_percent=settings.error_limit_percent,
        failed=share > settings.error_limit_percent,
        output_tokens_per_request=settings.output_tokens,
        seed=settings.seed,
        confidence_percent=settings.confidence_percent,
        resamples=settings.resamples,
        streamed=streamed,
        levels=results,
        recommended_draft_tokens=choice.recommended,
        undecided_draft_tokens=choice.undecided,
        baseline_url=baseline_url,
        baseline_model=None if baseline_url is None else settings.baseline_model,
    )


def _level(settings: Settings, concurrency: int, turns: Turns) -> Level:
    arms = {length: _arm(settings, length, turns[length]) for length in settings.arms}
    speculative = tuple(arms[length] for length in settings.draft_tokens)
    if settings.single:
        return Level(concurrency, None, speculative, None)
    baseline = _answered(_samples(turns[0]))
    baseline_tokens = {sample.index: sample.tokens for sample in baseline}
    requested = settings.output_tokens
    for length in settings.draft_tokens:
        other = _answered(_samples(turns[length]))
        interval = statistics.speedup(
            baseline,
            other,
            {
                sample.index: (
                    baseline_tokens.get(sample.index) or requested,
                    sample.tokens or requested,
                )
                for sample in other
            },
            confidence=settings.confidence_percent,
            resamples=settings.resamples,
            seed=settings.seed,
        )
        arms[length] = replace(arms[length], speedup_percent=interval)
    speculative = tuple(arms[length] for length in settings.draft_tokens)
    level = Level(concurrency, arms[0], speculative, None)
    return replace(level, recommended_draft_tokens=choose([level]).recommended)


def _arm(settings: Settings, length: int | None, turns: Sequence[Turn]) -> Arm:
    samples = _samples(turns)
    answered = _answered(samples)
    failed = [sample for sample in samples if sample.error is not None]
    seconds = sum(turn.seconds for turn in turns)
    tokens = [_tokens(settings, sample) for sample in answered]
    streamed = [sample for sample in answered if len(sample.chunks) > 1]
    acceptance, per_round = _acceptance(sum(tokens), answered, turns)
    energy = [turn.increase(_ENERGY) for turn in turns]
    return Arm(
        draft_tokens=length,
        requests=len(samples),
        errors=len(failed),
        first_error=str(failed[0].error) if failed else None,
        seconds=seconds,
        request_throughput=len(answered) / seconds if seconds else 0.0,
        output_token_throughput=sum(tokens) / seconds if seconds else 0.0,
        output_tokens=sum(tokens),
        output_tokens_counted=all(sample.tokens is not None for sample in answered),
        request_latency=statistics.latency([sample.seconds for sample in answered]),
        time_to_first_token=statistics.latency([sample.first for sample in streamed]),
        inter_token_latency=statistics.latency(list(_inter_token(settings, streamed))),
        inter_chunk_latency=statistics.latency(
            [gap for sample in streamed for gap in sample.gaps]
        ),
        acceptance_percent=acceptance,
        tokens_per_round=per_round,
        acceptance_by_position=statistics.by_position(streamed),
        speedup_percent=None,
        energy_joules=(
            sum(joules or 0.0 for joules in energy) if energy and None not in energy else None
        ),
    )


def _samples(turns: Sequence[Turn]) -> list[Sample]:
    return [sample for turn in turns for sample in turn.samples]


def _answered(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.error is None]


def _tokens(settings: Settings, sample: Sample) -> int:
    return settings.output_tokens if sample.tokens is None else sample.tokens


def _inter_token(settings: Settings, samples: Sequence[Sample]) -> Iterator[float]:
    for sample in samples:
        value = statistics.inter_token(sample, _tokens(settings, sample))
        if value is not None:
            yield value


def _acceptance(
    tokens: int, answered: Sequence[Sample], turns: Sequence[Turn]
) -> tuple[float | None, float | None]:
    """The percentage of accepted draft tokens, and tokens per round; None without draft tokens.

    Every round generates the accepted tokens and one more. The number of rounds is therefore the
    number of tokens minus the accepted ones. If answers have no counts, the server's counters
    replace them.
    """
    counts = [sample.counts for sample in answered if sample.counts is not None]
    drafted = sum(count.drafted for count in counts)
    if drafted and len(counts) == len(answered):
        accepted = sum(count.accepted for count in counts)
        return 100 * accepted / drafted, tokens / max(1, tokens - accepted)
    total = _counters(turns)
    if not total.drafted or not total.rounds:
        return None, None
    return 100 * total.accepted / total.drafted, (total.accepted + total.rounds) / total.rounds


def _counters(turns: Sequence[Turn]) -> SpeculationTotals:
    """The increase of the server's counters during all turns."""
    increases = (speculation(turn.after) - speculation(turn.before) for turn in turns)
    return sum(increases, start=SpeculationTotals())
