"""Numbers out of samples: percentiles, the speed-up's interval, acceptance by position."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from specdec.bench.exchange import Sample
from specdec.bench.report import Interval, Latency

_PERCENTILES = (25, 50, 75, 90, 95, 99)
_MILLISECONDS = 1000.0


def latency(seconds: Sequence[float]) -> Latency | None:
    """Distribution in milliseconds, percentiles interpolated linearly; None without values."""
    if not seconds:
        return None
    values = np.asarray(seconds) * _MILLISECONDS
    quarters = (float(value) for value in np.percentile(values, _PERCENTILES))
    return Latency(float(values.mean()), float(values.min()), float(values.max()), *quarters)


def inter_token(sample: Sample, tokens: int) -> float | None:
    """Seconds a token after the first: genai-perf's definition; None for a single token."""
    if tokens < 2 or not sample.first:
        return None
    return (sample.seconds - sample.first) / (tokens - 1)


def by_position(samples: Sequence[Sample]) -> tuple[float, ...]:
    """Percent of rounds that accepted their first, second ... draft token.

    A round counts at a position when it offered a token there. An answer whose chunks carried
    several rounds, or none of the counts, has steps that say so little that only those of the
    streamed kind are of use: the caller passes those.
    """
    steps = [step for sample in samples for step in sample.steps if step.drafted]
    longest = max((step.drafted for step in steps), default=0)
    shares = []
    for position in range(1, longest + 1):
        offered = [step.accepted >= position for step in steps if step.drafted >= position]
        shares.append(100 * sum(offered) / len(offered))
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
    """Seconds a token of the baseline over those of the other arm, in percent.

    In a closed loop whose answers are equally long this is the ratio of throughputs too, without
    the ends of blocks at which clients run out of work.

    The interval is the percentile bootstrap (Efron & Tibshirani, An Introduction to the
    Bootstrap, 1993, ch. 13) over pairs of requests that continue the same prompt with the same
    seed: prompts differ more than repetitions do.

    Args:
        baseline, speculative: answered requests; those that both arms answered are compared.
        tokens: output tokens (baseline's, other's) by the request's index.
        confidence: percent.
        resamples: draws of as many pairs as there are, with replacement.
        seed: of the draws.

    Returns:
        None without two pairs.
    """
    plain = {one.index: one.seconds for one in baseline}
    pairs = [
        (plain[one.index], one.seconds, *tokens[one.index])
        for one in speculative
        if one.index in plain
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
    """Percent, from sums [..., 4] of seconds and tokens of both arms."""
    plain, other, plain_tokens, other_tokens = np.moveaxis(sums, -1, 0)
    return np.asarray(100 * (plain / plain_tokens) / (other / other_tokens))
