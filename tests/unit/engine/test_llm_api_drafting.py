"""Drafts of the LLM API's stand-in equal those of slow but obvious searches."""

from hypothesis import given
from hypothesis import strategies as st

from specdec.images.backend.tensorrtllm.llm_api_engine.drafting import (
    NGramPool,
    NGrams,
    SuffixAutomaton,
    Suffixes,
    SuffixPool,
)

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def slow_suffix(tokens: list[int], length: int, longest: int) -> list[int]:
    """Return the tokens after the first occurrence of the longest suffix that occurs earlier."""
    most = len(tokens) - 1 if longest < 0 else min(longest, len(tokens) - 1)
    for size in range(most, 0, -1):
        suffix = tokens[-size:]
        for end in range(size, len(tokens)):
            if tokens[end - size : end] == suffix:
                return tokens[end : end + length]
    return []


def slow_ngram(tokens: list[int], most: int, length: int, *, oldest: bool) -> list[int]:
    for size in range(min(most, len(tokens)), 0, -1):
        suffix = tokens[-size:]
        ends = [e for e in range(size, len(tokens)) if tokens[e - size : e] == suffix]
        if ends:
            end = ends[0] if oldest else ends[-1]
            return tokens[end : end + length]
    return []


@given(TOKENS, st.integers(1, 6), st.sampled_from([-1, 1, 2, 3, 8]))
def test_an_automaton_continues_the_longest_suffix(
    tokens: list[int], length: int, longest: int
) -> None:
    automaton = SuffixAutomaton()
    for token in tokens:
        automaton.extend(token)
    assert automaton.continuation(length, longest) == slow_suffix(tokens, length, longest)


@given(TOKENS, st.integers(1, 4), st.integers(1, 6), st.booleans())
def test_ngrams_continue_the_longest_match(
    tokens: list[int], most: int, length: int, oldest: bool
) -> None:
    drafter = NGrams(NGramPool(most, keep_all=True, use_oldest=oldest))
    for end in range(1, len(tokens) + 1):
        proposal = drafter.propose(tokens[:end], length)
        assert proposal == slow_ngram(tokens[:end], most, length, oldest=oldest)


def test_without_keep_all_a_pool_has_the_newest_place() -> None:
    tokens = [1, 2, 1, 3, 1]
    assert NGrams(NGramPool(2, keep_all=False, use_oldest=True)).propose(tokens, 1) == [3]
    assert NGrams(NGramPool(2, keep_all=True, use_oldest=True)).propose(tokens, 1) == [2]


def test_only_a_shared_pool_drafts_from_another_sequence() -> None:
    shared = NGramPool(3, keep_all=True, use_oldest=True)
    NGrams(shared).propose([7, 8, 9], 2)
    assert NGrams(shared).propose([5, 7], 2) == [8, 9]
    assert NGrams(NGramPool(3, keep_all=True, use_oldest=True)).propose([5, 7], 2) == []


def test_a_pool_of_suffixes_searches_sequences_that_have_ended() -> None:
    pool = SuffixPool(2)
    first = Suffixes(-1, pool)
    first.propose([1, 2, 3, 4, 5], 2)
    assert Suffixes(-1, pool).propose([9, 2, 3], 2) == []
    first.close()
    assert Suffixes(-1, pool).propose([9, 2, 3], 2) == [4, 5]
    assert Suffixes(-1, None).propose([9, 2, 3], 2) == []
