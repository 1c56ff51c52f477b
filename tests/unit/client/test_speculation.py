"""The state machine of the draft/target loop: the answer equals the target's for any draft."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.client.draft_loop import DraftLoop, Round

END = 0


def target(ids: Sequence[int]) -> int:
    """A deterministic model over seven tokens that sometimes ends its answer."""
    return (ids[-1] * 5 + len(ids) * 3 + sum(ids[-3:])) % 7


def alone(
    prompt: list[int], limit: int, stops: Sequence[tuple[int, ...]], end: int | None
) -> list[int]:
    ids = list(prompt)
    while len(ids) - len(prompt) < limit:
        ids.append(target(ids))
        if ids[-1] == end or any(tuple(ids[-len(word) :]) == word for word in stops):
            break
    return ids[len(prompt) :]


def verify(ids: list[int], proposal: list[int], *, ends: bool = False) -> list[int]:
    """Return the accepted tokens and the next token; with `ends`, omit the end token."""
    new: list[int] = []
    for drafted in [*proposal, None]:
        token = target([*ids, *new])
        if ends and token == END:
            break
        new.append(token)
        if token in (END, None) or token != drafted:
            break
    return new


stop_lists = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=3).map(tuple), max_size=2)


@given(
    prompt=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    limit=st.integers(1, 24),
    length=st.integers(0, 6),
    stops=stop_lists,
    guesses=st.data(),
)
def test_answer_equals_the_targets_for_any_draft(
    prompt: list[int],
    limit: int,
    length: int,
    stops: list[tuple[int, ...]],
    guesses: st.DataObject,
) -> None:
    loop = DraftLoop(prompt, limit, length, END, stops)
    rounds: list[Round] = []
    while not loop.finished:
        drafted = loop.draft_length()
        assert drafted <= length
        assert len(loop.tokens) + drafted + 1 <= limit
        proposal: list[int] = []
        for _ in range(drafted):
            right = target([*loop.ids, *proposal])
            proposal.append(guesses.draw(st.sampled_from([right, right, (right + 1) % 7])))
        rounds.append(loop.advance(proposal, verify(loop.ids, proposal)))
    assert loop.tokens == alone(prompt, limit, stops, END)
    assert [token for finished in rounds for token in finished.tokens] == loop.tokens
    for finished in rounds:
        assert 0 <= finished.accepted <= min(finished.drafted, len(finished.tokens))


def test_target_that_omits_its_end_token_ends_the_answer() -> None:
    loop = DraftLoop([1], 10, 3)
    assert loop.advance([4, 5, 6], [4, 5]) == Round(3, 2, (4, 5))
    assert loop.finished
    assert loop.tokens == [4, 5]


def test_surplus_tokens_of_an_engine_are_dropped() -> None:
    loop = DraftLoop([1], 3, 4)
    assert loop.draft_length() == 2
    assert loop.advance([7, 8], [7, 8, 9, 9, 9]) == Round(2, 2, (7, 8, 9))
    assert loop.finished


@pytest.mark.parametrize(
    ("verified", "kept"), [([2, 3, 4], [2, 3]), ([3, 4, 5], [3]), ([4, 3, 2], [4, 3, 2])]
)
def test_stop_word_may_begin_in_the_prompt(verified: list[int], kept: list[int]) -> None:
    loop = DraftLoop([1, 2], 9, 2, stop_words=[(2, 3)])
    loop.advance(verified[:2], verified)
    assert loop.tokens == kept
    assert loop.finished == (kept != verified)


def test_zero_tokens_need_no_call() -> None:
    assert DraftLoop([1], 0, 4).finished
