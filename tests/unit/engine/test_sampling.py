"""Sampling: distributions, candidate sets and penalties; logit noise changes no sure choice."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.images.backend.tensorrtllm.reference_engine.sampling import (
    Sampling,
    adjust,
    choose,
    log_probability,
    probabilities,
)
from specdec.images.backend.tensorrtllm.reference_engine.verify import accept_by_logits
from specdec.images.backend.tensorrtllm.reference_engine.word_lists import WordList

LOGITS = np.array([2.0, 1.0, 0.5, 0.0, -1.0, -3.0], np.float32)
OTHER = np.array([0.0, 2.0, -1.0, 1.0, 0.5, -2.0], np.float32)
SAMPLES = 4000


def frequencies(tokens: list[int], size: int = LOGITS.size) -> npt.NDArray[np.float64]:
    return np.bincount(tokens, minlength=size) / len(tokens)


def close(actual: npt.NDArray[Any], expected: npt.NDArray[Any]) -> bool:
    """Return whether frequencies are within five standard deviations of the expected ones."""
    deviation = np.sqrt(expected * (1 - expected) / SAMPLES)
    return bool((np.abs(actual - expected) <= 5 * deviation + 1e-9).all())


RULES = [
    Sampling(top_p=1.0, seed=1),
    Sampling(top_p=1.0, temperature=0.5, seed=2),
    Sampling(top_k=3, seed=3),
    Sampling(top_p=0.8, seed=4),
    Sampling(top_k=4, top_p=0.7, temperature=2.0, seed=5),
]


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES, ids=range(len(RULES)))
def test_choices_follow_the_distribution(rules: Sampling) -> None:
    actual = [choose(rules, LOGITS, position, 1e-6).token for position in range(SAMPLES)]
    expected = probabilities(rules, LOGITS)
    assert close(frequencies(actual), expected)
    assert frequencies(actual)[expected == 0].sum() == 0


def test_distribution_is_softmax_cut_by_top_k_then_top_p() -> None:
    weights = np.exp(LOGITS.astype(np.float64))
    whole = weights / weights.sum()
    assert np.allclose(probabilities(Sampling(top_p=1.0), LOGITS), whole)
    top3 = np.where(np.arange(6) < 3, whole, 0)
    assert np.allclose(probabilities(Sampling(top_k=3), LOGITS), top3 / top3.sum())
    # The first two tokens have 0.73 of the mass, so the third is needed to reach 0.80.
    nucleus = probabilities(Sampling(top_p=0.8), LOGITS)
    assert np.flatnonzero(nucleus).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "rules",
    [Sampling(), Sampling(top_k=1, top_p=0.9), Sampling(top_p=0.9, temperature=0.0)],
    ids=["default", "top_k 1", "temperature 0"],
)
def test_greedy_is_the_default_as_in_tensorrt_llm(rules: Sampling) -> None:
    assert rules.greedy
    assert {choose(rules, LOGITS, position, 1e-6).token for position in range(20)} == {0}


def test_noise_depends_on_seed_and_position_only() -> None:
    rules = Sampling(top_p=1.0, seed=7)
    flat = np.zeros(50, np.float32)
    first = [choose(rules, flat, position, 0.0).token for position in range(100)]
    assert first == [choose(rules, flat, position, 0.0).token for position in range(100)]
    other = [choose(replace(rules, seed=8), flat, position, 0.0).token for position in range(100)]
    assert sum(a == b for a, b in zip(first, other, strict=True)) < 20
    assert len(set(first)) > 30


@given(
    values=st.lists(st.floats(-4, 4, width=32), min_size=4, max_size=12),
    noise=st.floats(1e-6, 1e-2),
    seed=st.integers(0, 2**64 - 1),
    top_k=st.integers(0, 5),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    data=st.data(),
)
def test_a_sure_choice_stands_under_noise(
    values: list[float], noise: float, seed: int, top_k: int, top_p: float, data: st.DataObject
) -> None:
    """For a sure choice, the exact rules select the same token for any logits within the noise."""
    rules = Sampling(top_k=top_k, top_p=top_p, temperature=0.8, seed=seed)
    logits = np.array(values, np.float32)
    # Noise matters in near ties, so rounding makes some values equal.
    if data.draw(st.booleans()):
        logits = np.round(logits)
    shifts = data.draw(
        st.lists(st.sampled_from([-1, 0, 1]), min_size=len(values), max_size=len(values))
    )
    moved = (logits + noise * 0.9 * np.array(shifts)).astype(np.float32)
    choice = choose(rules, logits.copy(), 5, noise)
    if choice.sure:
        assert choose(rules, moved, 5, 0.0).token == choice.token


def test_clear_choices_are_sure() -> None:
    for rules in (Sampling(), *RULES):
        sure = [choose(rules, LOGITS, position, 1e-5).sure for position in range(500)]
        assert sum(sure) >= 495
    assert not choose(Sampling(), np.array([1.0, 1.0], np.float32), 0, 1e-6).sure


def test_penalties_count_the_whole_sequence() -> None:
    tokens = np.array([0, 1, 1, 4])
    rules = Sampling(repetition_penalty=2.0)
    assert adjust(rules, LOGITS, tokens, 0).tolist() == [1.0, 0.5, 0.5, 0.0, -2.0, -3.0]
    rules = Sampling(presence_penalty=0.5, frequency_penalty=0.25)
    assert adjust(rules, LOGITS, tokens, 0).tolist() == [1.25, 0.0, 0.5, 0.0, -1.75, -3.0]


def test_minimum_length_bad_words_and_bias() -> None:
    tokens = np.array([3, 2])
    held = Sampling(end_id=0, min_length=2)
    assert np.isneginf(adjust(held, LOGITS, tokens, 1)[0])
    assert adjust(held, LOGITS, tokens, 2)[0] == 2.0
    banned = adjust(Sampling(bad_words=WordList(((1,), (2, 4), (9, 5)))), LOGITS, tokens, 0)
    assert np.flatnonzero(np.isneginf(banned)).tolist() == [1, 4]
    bias = np.arange(6, dtype=np.float32)
    assert np.array_equal(adjust(Sampling(bias=bias), LOGITS, tokens, 0), LOGITS + bias)
    assert LOGITS[0] == 2.0


def test_log_probability_is_log_softmax() -> None:
    weights = np.exp(LOGITS.astype(np.float64))
    assert math.isclose(
        log_probability(LOGITS, 2), math.log(weights[2] / weights.sum()), rel_tol=1e-6
    )


def test_normalized_log_probability_is_that_among_the_tokens_to_choose_from() -> None:
    first, second, *_ = (int(token) for token in np.argsort(LOGITS)[::-1])
    assert log_probability(LOGITS, first, Sampling().candidate_count) == 0.0
    weights = np.exp(LOGITS.astype(np.float64))[[first, second]]
    normalized = log_probability(LOGITS, second, Sampling(top_k=2).candidate_count)
    assert math.isclose(normalized, math.log(weights[1] / weights.sum()), rel_tol=1e-6)
    whole = log_probability(LOGITS, second, Sampling(top_p=0.5).candidate_count)
    assert whole == log_probability(LOGITS, second)


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES, ids=range(len(RULES)))
def test_rejection_sampling_gives_the_target_distribution(rules: Sampling) -> None:
    draft = np.random.default_rng(1)
    q = probabilities(rules, OTHER)
    actual, kept = [], 0
    for position in range(SAMPLES):
        drafted = int(draft.choice(q.size, p=q))
        token = accept_by_logits(rules, LOGITS, OTHER, drafted, position, None)
        kept += token == drafted
        actual.append(token)
    p = probabilities(rules, LOGITS)
    assert close(frequencies(actual), p)
    # The probability of accepting a draft token is the overlap of the two distributions.
    overlap = float(np.minimum(p, q).sum())
    assert abs(kept / SAMPLES - overlap) < 5 * math.sqrt(0.25 / SAMPLES)


def test_threshold_replaces_the_random_number() -> None:
    rules = Sampling(top_p=1.0)
    p, q = probabilities(rules, LOGITS), probabilities(rules, OTHER)
    for drafted in range(LOGITS.size):
        share = p[drafted] / q[drafted]
        for threshold in (0.05, 0.3, 0.9, 1.0):
            token = accept_by_logits(rules, LOGITS, OTHER, drafted, 3, threshold)
            assert (token == drafted) == (share >= threshold)
