"""What the text models share: tokenizer, word lists, bias."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from unit.triton.payload import MODELS, load

shared = load("specdec_text")

PAIR = MODELS.parent / "pair" / "target"
TOKENIZER = shared.Tokenizer(str(PAIR))


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
