"""The facts that the fetch Job reads from checkpoints: sizes, positions, templates, tokenizers."""

from pathlib import Path
from typing import Any

import pytest

from specdec.jobs.inspection import inspect
from unit.jobs.checkpoints import config, tokenizer, write


@pytest.mark.parametrize(
    ("changed", "fact", "value"),
    [
        ({}, "headDim", 4),
        ({"head_dim": 16}, "headDim", 16),
        ({"intermediate_size": 32}, "intermediateSize", 32),
        ({}, "intermediateSize", None),
        ({"tie_word_embeddings": True}, "tieEmbeddings", True),
        ({}, "parameters", 512),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "maxPosition", 256),
        (
            {
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 4,
                    "original_max_position_embeddings": 64,
                }
            },
            "maxPosition",
            256,
        ),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8,
                    "original_max_position_embeddings": 4,
                }
            },
            "maxPosition",
            64,
        ),
        ({"rope_scaling": {"type": "linear", "factor": 1e300}}, "maxPosition", 64),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization", "fp8"),
        ({"pad_token_id": 1}, "pad", 1),
    ],
)
def test_facts_of_a_checkpoint(
    changed: dict[str, Any], fact: str, value: object, tmp_path: Path
) -> None:
    folder = write(tmp_path / "m", **{"config.json": config(**changed)})
    assert inspect(folder).shown().get(fact) == value


def test_chat_template_has_the_same_hash_in_each_file(tmp_path: Path) -> None:
    text = "{% for m in messages %}\n {{ m }} {% endfor %}"
    named = [{"name": "tool", "template": "x"}, {"name": "default", "template": text}]
    places: list[dict[str, Any]] = [
        {"tokenizer_config.json": {"chat_template": text}},
        {"tokenizer_config.json": {"chat_template": named}},
        {"chat_template.jinja": text.replace("\n", "").encode()},
        {"chat_template.json": {"chat_template": text}},
    ]
    hashes = {
        inspect(write(tmp_path / str(n), **files)).chat_template for n, files in enumerate(places)
    }
    assert len(hashes) == 1
    assert inspect(write(tmp_path / "none")).chat_template is None


def test_sentencepiece_models_are_compared_if_both_have_one(tmp_path: Path) -> None:
    both = inspect(write(tmp_path / "both", **{"tokenizer.model": b"piece"}))
    alone = inspect(
        write(tmp_path / "alone", **{"tokenizer.model": b"piece", "tokenizer.json": None})
    )
    assert both.sentence_piece == alone.sentence_piece == alone.tokenizer
    assert both.tokenizer_file == "tokenizer.json"


def test_order_of_added_tokens_does_not_change_the_hash(tmp_path: Path) -> None:
    added = [{"id": i, "content": f"<{i}>", "special": True} for i in (0, 10, 2)]
    hashes = {
        inspect(
            write(tmp_path / str(n), **{"tokenizer.json": tokenizer(added_tokens=tokens)})
        ).tokenizer
        for n, tokens in enumerate((added, added[::-1]))
    }
    assert len(hashes) == 1
