"""Chunks of a streamed answer are exactly the unary answer, wherever tokens cut characters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unit.triton.loop import Meter, answer_module, policy, task_module

ALPHABET = (
    "ab \n\u00e9\u4e16\u754c\u65e5\u672c\U0001f642\U0001f389\U0001f469\u200d\U0001f4bb\u0301"
)
TEXTS = st.text(st.sampled_from(ALPHABET), min_size=1, max_size=24)


class Pieces:
    """A byte-level vocabulary: every token is some bytes, whole characters or not."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = list(pieces)

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.pieces[token] for token in ids).decode("utf-8", "replace")


class Dictated:
    """A generation of known tokens, in rounds of known sizes."""

    def __init__(self, tokens: int, rounds: random.Random) -> None:
        self._left = list(range(tokens))
        self._rounds = rounds

    def step(self, length: int) -> Any:
        size = self._rounds.randint(1, 4)
        taken, self._left = self._left[:size], self._left[size:]
        return answer_module.Chunk(taken, rounds=1, finished=not self._left)


def cut(text: str, data: st.DataObject) -> list[bytes]:
    """The text's bytes in pieces of one to six."""
    whole, pieces = text.encode(), []
    while whole:
        size = data.draw(st.integers(1, 6))
        pieces.append(whole[:size])
        whole = whole[size:]
    return pieces


def answered(pieces: list[bytes], stops: Sequence[str], seed: int, *, stream: bool) -> list[str]:
    tokenizer = Pieces(pieces)
    task = task_module.Task(
        prompt=(),
        max_tokens=len(pieces),
        draft_tokens=4,
        stop_texts=tuple(stops),
        stream=stream,
        exclude_input=True,
    )
    lengths = policy.FixedLength(4)
    answer = answer_module.Answer(task, None, None, tokenizer, lengths, Meter(), lambda: False)
    answer._generation = Dictated(len(pieces), random.Random(seed))
    return [part.text for part in answer.parts()]


def until(text: str, stops: Sequence[str]) -> str:
    """Character by character: up to the end of the first stop word."""
    for end in range(1, len(text) + 1):
        if any(text[:end].endswith(stop) for stop in stops):
            return text[:end]
    return text


@settings(max_examples=150, deadline=None)
@given(text=TEXTS, seed=st.integers(0, 1000), data=st.data())
def test_chunks_concatenate_to_the_unary_answer(text: str, seed: int, data: st.DataObject) -> None:
    pieces = cut(text, data)
    stops = data.draw(
        st.lists(
            st.one_of(words(text), st.text(st.sampled_from(ALPHABET), min_size=1)), max_size=3
        )
    )
    streamed = answered(pieces, stops, seed, stream=True)
    assert "".join(streamed) == until(text, stops)
    assert not any("\ufffd" in part for part in streamed)
    assert answered(pieces, stops, seed, stream=False) == [until(text, stops)]


@st.composite
def words(draw: st.DrawFn, text: str) -> str:
    start = draw(st.integers(0, len(text) - 1))
    return text[start : start + draw(st.integers(1, 5))]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_stop_word_in_front_of_a_cut_character(stream: bool) -> None:
    smile = "\U0001f642".encode()
    pieces = [b"go", b" on " + smile[:2], smile[2:]]
    assert "".join(answered(pieces, ["on "], 0, stream=stream)) == "go on "


@settings(max_examples=60, deadline=None)
@given(bits=st.binary(max_size=40), seed=st.integers(0, 1000), data=st.data())
@example(bits=b"\xf0\x9f", seed=0, data=None)
def test_bytes_that_are_no_text_concatenate_too(
    bits: bytes, seed: int, data: st.DataObject | None
) -> None:
    pieces = [bits[at : at + 1] for at in range(len(bits))]
    if not pieces:
        return
    streamed = "".join(answered(pieces, [], seed, stream=True))
    assert [streamed] == answered(pieces, [], seed, stream=False)
    assert streamed == bits.decode("utf-8", "replace")
