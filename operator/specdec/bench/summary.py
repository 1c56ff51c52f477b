"""From samples to the report."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from specdec.bench import statistics
from specdec.bench.exchange import Sample
from specdec.bench.report import FORMAT, Arm, Ended, Level, Report
from specdec.bench.settings import Settings
from specdec.client.metrics import SpeculationTotals, speculation

Totals = Mapping[str, float]
# NVIDIA's DCGM by Triton: joules since the driver started, one sample a GPU.
_ENERGY = "nv_energy_consumption"


@dataclass(frozen=True)
class Block:
    """One turn of an arm.

    Attributes:
        seconds: from its beginning to a client's last answer, the mean over its clients.
        samples: its requests.
        before, after: the server's counters, empty where there are none.
    """

    seconds: float
    samples: Sequence[Sample]
    before: Totals
    after: Totals

    def gained(self, name: str) -> float | None:
        """What a counter gained, None where it is not known."""
        if name not in self.before or name not in self.after:
            return None
        return self.after[name] - self.before[name]


Blocks = Mapping[int | None, Sequence[Block]]


def report(
    settings: Settings,
    levels: Mapping[int, Blocks],
    *,
    url: str,
    started: datetime,
    seconds: float,
    ended: Ended,
    message: str,
    streamed: bool,
) -> Report:
    """The report of a run whose levels got as far as given."""
    found = tuple(
        _level(settings, concurrency, blocks)
        for concurrency, blocks in levels.items()
        if any(blocks.values())
    )
    requests = sum(arm.requests for level in found for arm in level.arms)
    errors = sum(arm.errors for level in found for arm in level.arms)
    share = 100 * errors / requests if requests else 0.0
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
        levels=found,
        recommended_draft_tokens=_recommended(found),
    )


def _level(settings: Settings, concurrency: int, blocks: Blocks) -> Level:
    arms = {length: _arm(settings, length, blocks[length]) for length in settings.arms}
    plain = [one for one in _samples(blocks[0]) if one.error is None]
    for length in settings.draft_tokens:
        other = [one for one in _samples(blocks[length]) if one.error is None]
        counted = {one.index: one.tokens for one in plain}
        wanted = settings.output_tokens
        interval = statistics.speedup(
            plain,
            other,
            {one.index: (counted.get(one.index) or wanted, one.tokens or wanted) for one in other},
            confidence=settings.confidence_percent,
            resamples=settings.resamples,
            seed=settings.seed,
        )
        arms[length] = replace(arms[length], speedup_percent=interval)
    level = Level(concurrency, arms[0], tuple(arms[one] for one in settings.draft_tokens), None)
    return replace(level, recommended_draft_tokens=_recommended([level]))


def _arm(settings: Settings, length: int | None, blocks: Sequence[Block]) -> Arm:
    samples = _samples(blocks)
    answered = [one for one in samples if one.error is None]
    failed = [one for one in samples if one.error is not None]
    seconds = sum(block.seconds for block in blocks)
    tokens = [_tokens(settings, one) for one in answered]
    streamed = [one for one in answered if len(one.chunks) > 1]
    acceptance, per_round = _acceptance(sum(tokens), answered, blocks)
    energy = [block.gained(_ENERGY) for block in blocks]
    return Arm(
        draft_tokens=length,
        requests=len(samples),
        errors=len(failed),
        first_error=str(failed[0].error) if failed else None,
        seconds=seconds,
        request_throughput=len(answered) / seconds if seconds else 0.0,
        output_token_throughput=sum(tokens) / seconds if seconds else 0.0,
        output_tokens=sum(tokens),
        output_tokens_counted=all(one.tokens is not None for one in answered),
        request_latency=statistics.latency([one.seconds for one in answered]),
        time_to_first_token=statistics.latency([one.first for one in streamed]),
        inter_token_latency=statistics.latency(list(_inter_token(settings, streamed))),
        inter_chunk_latency=statistics.latency([gap for one in streamed for gap in one.gaps]),
        acceptance_percent=acceptance,
        tokens_per_round=per_round,
        acceptance_by_position=statistics.by_position(streamed),
        speedup_percent=None,
        energy_joules=sum(one or 0.0 for one in energy) if energy and None not in energy else None,
    )


def _samples(blocks: Sequence[Block]) -> list[Sample]:
    return [one for block in blocks for one in block.samples]


def _tokens(settings: Settings, sample: Sample) -> int:
    return settings.output_tokens if sample.tokens is None else sample.tokens


def _inter_token(settings: Settings, samples: Sequence[Sample]) -> Iterator[float]:
    for one in samples:
        value = statistics.inter_token(one, _tokens(settings, one))
        if value is not None:
            yield value


def _acceptance(
    tokens: int, answered: Sequence[Sample], blocks: Sequence[Block]
) -> tuple[float | None, float | None]:
    """Percent of draft tokens accepted, and tokens a round; None without draft tokens.

    Every round adds one token to those it accepts, so an answer of n tokens took n less the
    accepted ones. Where answers do not tell, the server's counters do.
    """
    counts = [one.counts for one in answered if one.counts is not None]
    drafted = sum(one.drafted for one in counts)
    if drafted and len(counts) == len(answered):
        accepted = sum(one.accepted for one in counts)
        return 100 * accepted / drafted, tokens / max(1, tokens - accepted)
    told = _counters(blocks)
    if not told.drafted or not told.rounds:
        return None, None
    return 100 * told.accepted / told.drafted, (told.accepted + told.rounds) / told.rounds


def _counters(blocks: Sequence[Block]) -> SpeculationTotals:
    """What the server counted in all turns."""
    sums = SpeculationTotals()
    for block in blocks:
        gained = speculation(block.after) - speculation(block.before)
        sums = SpeculationTotals(
            sums.rounds + gained.rounds,
            sums.drafted + gained.drafted,
            sums.accepted + gained.accepted,
            sums.generated + gained.generated,
        )
    return sums


def _recommended(levels: Sequence[Level]) -> int | None:
    """The arm with the highest geometric mean of speed-ups; 0 where none beats the baseline."""
    logarithms: dict[int | None, list[float]] = {}
    for level in levels:
        for arm in level.speculative:
            if arm.speedup_percent is not None:
                value = math.log(arm.speedup_percent.value / 100)
                logarithms.setdefault(arm.draft_tokens, []).append(value)
    means = {length: sum(values) / len(values) for length, values in logarithms.items()}
    if not means:
        return None
    best = max(means, key=lambda length: means[length])
    return best if means[best] > 0 else 0
