"""The stand-in reads `model.yaml` and refuses what the LLM API would refuse."""

from copy import deepcopy
from typing import Any

import pytest

from specdec.images.backend.tensorrtllm.llm_api_engine.settings import Settings, Speculation
from specdec.images.backend.tensorrtllm.reference_engine.errors import EngineError

FILE: dict[str, Any] = {
    "model": "/models/checkpoints/a",
    "backend": "pytorch",
    "max_seq_len": 64,
    "triton_config": {"max_batch_size": 0, "decoupled": True},
}
NGRAM = {"decoding_type": "NGram", "max_draft_len": 4, "is_public_pool": False}


def read(change: dict[str, Any], instances: int = 1, devices: str = "") -> Settings:
    return Settings.read({**deepcopy(FILE), **change}, instances, devices)


def test_settings_are_those_of_the_file() -> None:
    settings = read(
        {"speculative_config": NGRAM, "kv_cache_config": {"max_tokens": 9}}, 2, "0,1;2,3"
    )
    assert (settings.max_seq_len, settings.decoupled, settings.kv_tokens) == (64, True, 9)
    assert (settings.speculation.kind, settings.speculation.length) == ("NGram", 4)
    assert read({}).speculation == Speculation()


@pytest.mark.parametrize(
    ("key", "value"),
    [("speculative_model", "/d"), ("speculative_model_dir", "/d")],
)
def test_a_draft_has_either_spelling(key: str, value: str) -> None:
    for kind in ("DraftTarget", "Draft_Target"):
        own = {"decoding_type": kind, "max_draft_len": 2, key: value}
        speculation = read({"speculative_config": own}).speculation
        assert (speculation.kind, str(speculation.draft)) == ("DraftTarget", "/d")


def test_the_draft_length_follows_the_load() -> None:
    schedule = {"draft_len_schedule": {1: 4, 8: 2, 32: 0}}
    own = read({"speculative_config": {**NGRAM, **schedule}}).speculation
    assert [own.length_for(n) for n in (1, 7, 8, 31, 32, 99)] == [4, 4, 2, 2, 0, 0]
    own = read({"speculative_config": {**NGRAM, "max_concurrency": 3}}).speculation
    assert [own.length_for(n) for n in (1, 3, 4)] == [4, 4, 0]


@pytest.mark.parametrize(
    ("change", "instances", "sentence"),
    [
        ({"modle": 1}, 1, "model.yaml has unknown keys modle: remove them"),
        ({"backend": "tensorrt"}, 1, "set it to pytorch"),
        ({"triton_config": {"decoupled": True}}, 1, "write both"),
        ({"triton_config": {"decoupled": True, "max_batch_size": 8}}, 1, "must be 0"),
        ({"triton_config": 3}, 1, "triton_config of model.yaml is no mapping"),
        ({}, 2, "there are 2 instances and gpu_device_ids has 0 lists"),
        ({"max_seq_len": "long"}, 1, "unusable value"),
        (
            {"speculative_config": {"decoding_type": "Eagle3"}},
            1,
            "is Eagle3, which computes on GPUs",
        ),
        ({"speculative_config": {"decoding_type": "MTP"}}, 1, "is MTP, which computes on GPUs"),
        ({"speculative_config": {"decoding_type": "PARD"}}, 1, "is PARD, which computes on GPUs"),
        ({"speculative_config": {"decoding_type": "DFlash"}}, 1, "is DFlash, which computes on"),
        ({"speculative_config": {"decoding_type": "Guess"}}, 1, "set it to one of DraftTarget"),
        ({"speculative_config": {"decoding_type": "NGram"}}, 1, "max_draft_len is missing"),
        (
            {"speculative_config": {"decoding_type": "Draft_Target", "max_draft_len": 2}},
            1,
            "speculative_model is missing: name the draft",
        ),
        ({"speculative_config": {**NGRAM, "mask_token_id": 1}}, 1, "unknown keys mask_token_id"),
        (
            {
                "speculative_config": {
                    **NGRAM,
                    "max_concurrency": 2,
                    "draft_len_schedule": {1: 4},
                }
            },
            1,
            "exclude each other: remove one",
        ),
        ({"speculative_config": {**NGRAM, "draft_len_schedule": {1: 3}}}, 1, "make them equal"),
        ({"speculative_config": NGRAM, "pipeline_parallel_size": 2}, 1, "set pipeline_parallel"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(
    change: dict[str, Any], instances: int, sentence: str
) -> None:
    with pytest.raises(EngineError) as error:
        read(change, instances)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(EngineError, match="is no mapping of arguments"):
        Settings.read([1], 1, "")
