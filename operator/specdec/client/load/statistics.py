"""Statistics of samples: percentiles, speed-up with confidence interval, acceptance by position.

`summary` calls these functions; they are pure, and the bootstrap is deterministic for a seed.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from specdec.client.load.exchange import Sample
from specdec.client.load.report import Interval, Latency

_PERCENTILES = (25, 50, 75, 90, 95, 99)
_MILLISECONDS = 1000.0


def latency(seconds: Sequence[float]) -> Latency | None:
    """The distribution in milliseconds, with linear percentiles; None without values."""
    if not seconds:
        return None
    values = np.asarray(seconds) * _MILLISECONDS
    quarters = (float(value) for value in np.percentile(values, _PERCENTILES))
    return Latency(float(values.mean()), float(values.min()), float(values.max()), *quarters)


def inter_token(sample: Sample, tokens: int) -> float | None:
    """Seconds per token after the first, as genai-perf defines it; None for a single token."""
    if tokens < 2 or not sample.first:
        return None
    return (sample.seconds - sample.first) / (tokens - 1)


def by_position(samples: Sequence[Sample]) -> tuple[float, ...]:
    """The percentage of rounds that accepted their first, second ... draft token.

    A round counts at a position if it drafted a token there. Only streamed answers have one round
    per chunk, so the caller passes only those.
    """
    steps = [step for sample in samples for step in sample.steps if step.drafted]
    longest = max((step.drafted for step in steps), default=0)
    shares = []
    for position in range(1, longest + 1):
        accepted = [step.accepted >= position for step in steps if step.drafted >= position]
        shares.append(100 * sum(accepted) / len(accepted))
    return tuple(shares)


def speedup(
    baseline: Sequence[Sample],
    speculative: Sequence[Sample],
    tokens: Mapping[int, tuple[int, int]],
    *,
    confidence: float,
    resamples: int,
    seed: int,
) -> Interval | None:
    """The baseline's seconds per token divided by those of the other arm, in percent.

    In a closed loop with equally long answers, this equals the ratio of the throughputs. It
    excludes the end of a turn, when some clients have no more requests.

    The interval is the percentile bootstrap (Efron & Tibshirani, An Introduction to the
    Bootstrap, 1993, ch. 13) over pairs of requests with the same prompt and seed, because prompts
    differ more than repetitions do.

    Args:
        baseline, speculative: answered requests; those that both arms answered are compared.
        tokens: output tokens (of the baseline, of the other arm) by index of the request.
        confidence: percent.
        resamples: number of bootstrap samples.
        seed: of the bootstrap.

    Returns:
        None with fewer than two pairs.
    """
    baseline_seconds = {sample.index: sample.seconds for sample in baseline}
    pairs = [
        (baseline_seconds[sample.index], sample.seconds, *tokens[sample.index])
        for sample in speculative
        if sample.index in baseline_seconds
    ]
    if len(pairs) < 2:
        return None
    values = np.array(pairs, float)
    draws = np.random.default_rng(seed).integers(len(values), size=(resamples, len(values)))
    ratios = _ratio(values[draws].sum(axis=1))
    tail = (100 - confidence) / 2
    low, high = np.percentile(ratios, (tail, 100 - tail))
    return Interval(float(_ratio(values.sum(axis=0))), float(low), float(high))


def _ratio(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The speed-up in percent, from sums [..., 4] of seconds and tokens of both arms."""
    baseline, other, baseline_tokens, other_tokens = np.moveaxis(sums, -1, 0)
    return np.asarray(100 * (baseline / baseline_tokens) / (other / other_tokens))
