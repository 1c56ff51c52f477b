"""Percentiles, intervals and acceptance by position of samples with known results."""

import numpy as np
import pytest

from specdec.client.load import statistics
from specdec.client.load.exchange import Sample, Step


def samples(seconds: list[float]) -> list[Sample]:
    return [Sample(index, seconds=value) for index, value in enumerate(seconds)]


def interval(
    plain: list[float], other: list[float], seed: int = 0, confidence: float = 95
) -> object:
    tokens = dict.fromkeys(range(len(plain)), (10, 10))
    return statistics.speedup(
        samples(plain),
        samples(other),
        tokens,
        confidence=confidence,
        resamples=2000,
        seed=seed,
    )


def test_latency_is_milliseconds_with_interpolated_percentiles() -> None:
    latency = statistics.latency([0.001 * n for n in range(1, 102)])
    assert latency is not None
    assert (latency.min, latency.p50, latency.p99, latency.max) == pytest.approx((1, 51, 100, 101))
    assert latency.avg == pytest.approx(51)
    assert statistics.latency([]) is None


def test_interval_covers_the_true_ratio_at_its_confidence() -> None:
    chance = np.random.default_rng(1)
    covered = 0
    for run in range(200):
        prompts = chance.uniform(1, 3, 40)
        plain = (prompts * chance.normal(1, 0.1, 40)).tolist()
        other = (prompts / 1.5 * chance.normal(1, 0.1, 40)).tolist()
        speedup = statistics.speedup(
            samples(plain),
            samples(other),
            dict.fromkeys(range(40), (10, 10)),
            confidence=90,
            resamples=400,
            seed=run,
        )
        assert speedup is not None
        covered += speedup.low <= 150 <= speedup.high
    # 90 % of 200, plus or minus four standard deviations; percentile intervals are narrow.
    assert 155 <= covered <= 196


def test_pairing_removes_differences_between_prompts() -> None:
    plain = [1.0, 10.0, 2.0, 20.0, 4.0, 40.0]
    speedup = statistics.speedup(
        samples(plain),
        samples([value / 2 for value in plain]),
        dict.fromkeys(range(6), (10, 10)),
        confidence=95,
        resamples=500,
        seed=0,
    )
    assert speedup is not None
    assert (speedup.value, speedup.low, speedup.high) == pytest.approx((200, 200, 200))


def test_answers_of_different_lengths_are_compared_per_token() -> None:
    speedup = statistics.speedup(
        samples([1.0, 1.0]),
        samples([1.0, 1.0]),
        dict.fromkeys(range(2), (10, 20)),
        confidence=95,
        resamples=500,
        seed=0,
    )
    assert speedup is not None
    assert speedup.value == pytest.approx(200)


def test_single_pair_has_no_interval() -> None:
    assert interval([1.0], [2.0]) is None
    assert interval([1.0, 2.0], [2.0, 3.0]) is not None


def test_interval_depends_only_on_the_seed() -> None:
    chance = np.random.default_rng(1)
    plain, other = chance.uniform(1, 2, 30).tolist(), chance.uniform(1, 2, 30).tolist()
    assert interval(plain, other, seed=3) == interval(plain, other, seed=3)
    assert interval(plain, other, seed=3) != interval(plain, other, seed=4)


def test_positions_count_rounds_that_offered_a_token_there() -> None:
    sample = Sample(0, steps=(Step(3, 3), Step(3, 1), Step(3, 0), Step(1, 1), Step(0, 0)))
    assert statistics.by_position([sample]) == pytest.approx((75, 100 / 3, 100 / 3))
    assert statistics.by_position([]) == ()


def test_inter_token_latency_excludes_the_first_token() -> None:
    assert statistics.inter_token(Sample(0, seconds=1.0, first=0.1), 10) == pytest.approx(0.1)
    assert statistics.inter_token(Sample(0, seconds=1.0, first=0.1), 1) is None
