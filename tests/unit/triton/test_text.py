"""The shared code of the text models: tokenizer, word lists, bias."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.payload import MODELS, load

shared = load("specdec_text")

PAIR = MODELS.parent / "pair" / "target"
TOKENIZER = shared.Tokenizer(str(PAIR))


def test_word_lists_are_ids_over_end_offsets() -> None:
    array = shared.word_array([[7, 8], [9]])
    assert array.tolist() == [[7, 8, 9], [2, 3, -1]]
    assert shared.word_array([]).shape == (2, 0)


def test_bias_needs_a_weight_for_every_word() -> None:
    bias = TOKENIZER.bias(["x"], [2.0])
    (token,) = TOKENIZER.word_list(["x"])[0]
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


_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def _before(step: dict[str, Any]) -> dict[str, Any]:
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [step, _BYTE_LEVEL]}}


def _split(behavior: str) -> dict[str, Any]:
    pattern = {"pattern": {"String": " "}, "invert": False}
    return _before({"type": "Split", "behavior": behavior, **pattern})


# operator/bls/specdec-bls/tests/tokenizer.rs has the same cases for the BLS.
@pytest.mark.parametrize(
    ("change", "size"),
    [
        ({}, 37),
        (_split("Isolated"), 37),
        (_split("Removed"), 4 * 37),
        (_before({"type": "WhitespaceSplit"}), 4 * 37),
        ({"normalizer": {"type": "NFC"}}, 4 * 37),
        (
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [{"type": "Prepend", "prepend": "a"}],
                }
            },
            37,
        ),
        ({"pre_tokenizer": None}, 4 * 74),
    ],
)
def test_the_longest_token_bounds_the_bytes_of_a_token(
    tmp_path: Path, change: dict[str, Any], size: int
) -> None:
    content = json.loads((PAIR / "tokenizer.json").read_text("utf-8"))
    (tmp_path / "tokenizer.json").write_text(json.dumps(content | change))
    assert shared.Tokenizer(str(tmp_path)).bytes_per_token == size


def test_an_added_token_may_be_the_longest(tmp_path: Path) -> None:
    content = (PAIR / "tokenizer.json").read_text("utf-8")
    longer = "<|a token that somebody added to the vocabulary|>"
    (tmp_path / "tokenizer.json").write_text(content.replace("<|endoftext|>", longer))
    assert shared.Tokenizer(str(tmp_path)).bytes_per_token == len(longer)


@pytest.mark.parametrize(
    ("max_seq_len", "bytes_per_token", "most"),
    [(512, 37, 64 << 10), (8192, 128, 1 << 20), (0, 128, 1 << 20), (8192, 0, 1 << 20)],
)
def test_prompts_have_a_limit_of_bytes(max_seq_len: int, bytes_per_token: int, most: int) -> None:
    limits = shared.TextLimits(max_seq_len, bytes_per_token)
    limits.prompts([b"short", b"a" * most], "text_input")
    with pytest.raises(shared.TextError) as refused:
        limits.prompts([b"short", b"a" * (most + 1)], "text_input")
    assert str(refused.value) == (
        f"text_input has {most + 1} bytes, more than the limit of {most} for a prompt: "
        "send a shorter prompt"
    )


def test_a_prompt_leaves_at_least_one_token() -> None:
    shared.TextLimits(512, 37).tokens(511, "text_input")
    shared.TextLimits(0, 37).tokens(10_000, "text_input")
    with pytest.raises(shared.TextError) as refused:
        shared.TextLimits(512, 37).tokens(512, "text_input")
    assert str(refused.value) == (
        "text_input has 512 tokens, more than the limit of 511 for a prompt: send a shorter prompt"
    )


def test_lists_have_limits_of_items_and_bytes() -> None:
    shared.TextLimits.items([b"a" * 64] * 1024, "stop_words")
    with pytest.raises(
        shared.TextError, match="stop_words has 1025 items, more than the limit of"
    ):
        shared.TextLimits.items([b"a"] * 1025, "stop_words")
    with pytest.raises(
        shared.TextError, match="bad_words has 65537 bytes, more than the limit of"
    ):
        shared.TextLimits.items(["é" * 32 * 1024, "a"], "bad_words")


def test_a_sequence_length_that_is_no_number_is_named() -> None:
    config = {"parameters": {"max_seq_len": {"string_value": "many"}}}
    with pytest.raises(shared.TextError, match="max_seq_len is many: set it to a whole number"):
        shared.number(config, "max_seq_len")
    assert shared.number({}, "max_seq_len") == 0
