"""Text of the BLS: chunks add up to the whole, stop words are found across chunks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.triton.payload import MODELS, load

text_module = load("specdec_bls.text")
shared = load("specdec_text")

PAIR = MODELS.parent / "pair" / "target"
TOKENIZER = shared.Tokenizer(str(PAIR))


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=60), data=st.data())
def test_chunks_concatenate_to_the_whole(text: str, data: st.DataObject) -> None:
    ids = TOKENIZER.encode(text)
    detokenizer = text_module.Detokenizer(TOKENIZER.decode)
    found = ""
    while ids:
        count = data.draw(st.integers(1, len(ids)))
        piece = detokenizer.push(ids[:count])
        assert "\ufffd" not in piece or "\ufffd" in text
        found += piece
        ids = ids[count:]
    assert found + detokenizer.flush() == text


@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(1, 1023), max_size=200))
def test_any_tokens_concatenate_to_their_decoding(ids: list[int]) -> None:
    detokenizer = text_module.Detokenizer(TOKENIZER.decode)
    pieces = [detokenizer.push([token]) for token in ids]
    assert "".join(pieces) + detokenizer.flush() == TOKENIZER.decode(ids)


def test_a_long_answer_is_not_decoded_again_and_again() -> None:
    longest = 0

    def decode(ids: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return "x" * len(ids)

    detokenizer = text_module.Detokenizer(decode)
    assert "".join(detokenizer.push([1]) for _ in range(1000)) == "x" * 1000
    assert longest < 100


@given(
    pieces=st.lists(st.text("ab", max_size=4), max_size=12),
    words=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_stop_words_are_found_wherever_chunks_end(pieces: list[str], words: list[str]) -> None:
    stop = text_module.StopText(words)
    found = ""
    for piece in pieces:
        cut = stop.cut(piece)
        found += piece if cut is None else piece[:cut]
        if cut is not None:
            break
    whole = "".join(pieces)
    ends = [whole.find(word) + len(word) for word in words if word in whole]
    assert found == whole[: min(ends, default=len(whole))]


def test_word_lists_are_ids_over_end_offsets() -> None:
    array = shared.word_array([[7, 8], [9]])
    assert array.tolist() == [[7, 8, 9], [2, 3, -1]]
    assert shared.word_array([]).shape == (2, 0)


def test_bias_needs_a_weight_for_every_word() -> None:
    bias = TOKENIZER.bias(["x"], [2.0])
    (token,) = TOKENIZER.words(["x"])[0]
    assert bias[token] == 2.0
    assert np.count_nonzero(bias) == 1
    with pytest.raises(shared.TextError, match="send one weight for every word"):
        TOKENIZER.bias(["x", "y"], [1.0])


def test_special_tokens_come_from_the_directory(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((PAIR / "tokenizer.json").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [3, 4]}))
    assert shared.Tokenizer(str(tmp_path)).end_id == 3
    assert TOKENIZER.end_id == 0


@pytest.mark.parametrize("content", ["{}", "no json"])
def test_a_broken_tokenizer_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(shared.TextError, match=r"tokenizer\.json is no tokenizer"):
        shared.Tokenizer(str(tmp_path))


def test_a_directory_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(shared.TextError, match="tokenizer"):
        shared.Tokenizer(str(tmp_path))
