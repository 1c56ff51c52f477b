"""Model configurations: generated parameters are read, and invalid ones are refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from specdec.images.backend.tensorrtllm.reference_engine.config import (
    EngineConfig,
    Lookahead,
    ModelSettings,
    resolve_lookahead,
)
from specdec.images.backend.tensorrtllm.reference_engine.errors import EngineError
from specdec.images.backend.tensorrtllm.reference_engine.weights import load
from support.oracle import Tiny
from support.reference_engines import build


def settings(**parameters: str) -> ModelSettings:
    values = {
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": "/engines/k",
        **parameters,
    }
    config: dict[str, Any] = {
        "parameters": {key: {"string_value": value} for key, value in values.items()}
    }
    return ModelSettings.read(config)


def test_defaults() -> None:
    read = settings(max_tokens_in_paged_kv_cache="${max_tokens}", enable_kv_cache_reuse="")
    assert read.kv_tokens == 0
    assert not read.kv_reuse
    assert not read.exclude_input
    assert read.step_latency == 0.0
    assert read.cancel_period == 0.1
    assert read.max_queue == 1024


@pytest.mark.parametrize("word", ["true", "True", "TRUE", "1"])
def test_booleans_are_spelled_as_tensorrt_llm_spells_them(word: str) -> None:
    assert settings(enable_kv_cache_reuse=word).kv_reuse
    assert not settings(enable_kv_cache_reuse="yes").kv_reuse


def test_simulated_latency() -> None:
    assert settings(step_latency_ms="20").step_latency == 0.02
    assert settings(step_latency_ms="20", draft_step_latency_ms="2").step_latency == 0.002


def test_simulated_rank() -> None:
    assert settings().simulated_load is None
    waiting = settings(simulated_load_seconds="0")
    assert (waiting.simulated_load, waiting.simulated_ready_early) == (0.0, False)
    early = settings(simulated_load_seconds="30", simulated_ready_early="true")
    assert (early.simulated_load, early.simulated_ready_early) == (30.0, True)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"gpt_model_type": "fused"}, ("gpt_model_type", "fused", "inflight_fused_batching")),
        ({"gpt_model_path": ""}, ("gpt_model_path is empty",)),
        ({"max_beam_width": "4"}, ("max_beam_width", "1")),
        ({"decoding_mode": "medusa"}, ("decoding_mode", "medusa")),
        (
            {"decoding_mode": "lookahead", "lookahead_window_size": "3"},
            ("lookahead_ngram_size", "at least"),
        ),
    ],
)
def test_refusals(parameters: dict[str, str], named: tuple[str, ...]) -> None:
    with pytest.raises(EngineError) as refusal:
        settings(**parameters)
    assert all(word in str(refusal.value) for word in named)


LOOKAHEAD = {
    "decoding_mode": "lookahead",
    "lookahead_window_size": "3",
    "lookahead_ngram_size": "4",
    "lookahead_verification_set_size": "5",
}


def test_draft_length_of_lookahead_is_tensorrt_llms() -> None:
    assert Lookahead(7, 7, 7).draft_len == 83
    assert Lookahead(1, 1, 0).draft_len == 0
    assert Lookahead(2, 2, 1).draft_len == 2


@pytest.mark.slow
def test_lookahead_needs_an_engine_built_for_it(tmp_path: Path) -> None:
    checkpoint = Tiny().write(tmp_path / "hf")
    shape = {"windowSize": 3, "ngramSize": 4, "verificationSetSize": 5}
    wide = build(
        checkpoint,
        tmp_path / "wide",
        maxDraftTokens=23,
        speculativeDecodingMode="lookahead_decoding",
        lookahead=shape,
    )
    engine = EngineConfig.read(wide)
    assert resolve_lookahead(settings(), engine) is None
    assert resolve_lookahead(settings(**LOOKAHEAD), engine) == Lookahead(3, 4, 5)
    # Release 0.18 has no parameters for the shape, so the engine's own shape applies.
    assert resolve_lookahead(settings(decoding_mode="lookahead"), engine) == Lookahead(3, 4, 5)
    narrow = EngineConfig.read(build(checkpoint, tmp_path / "narrow", maxDraftTokens=22))
    with pytest.raises(EngineError, match="needs an engine built for 23 draft tokens"):
        resolve_lookahead(settings(**LOOKAHEAD), narrow)
    with pytest.raises(EngineError, match="was not built for it"):
        resolve_lookahead(settings(decoding_mode="lookahead"), narrow)


def test_unusable_engine_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="does not exist; build the engine"):
        EngineConfig.read(tmp_path / "none")
    with pytest.raises(EngineError, match="not an engine's config"):
        EngineConfig.read(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"pretrained_config": {}}), encoding="utf-8")
    with pytest.raises(EngineError, match="not an engine's config"):
        EngineConfig.read(tmp_path)


@pytest.mark.slow
def test_damaged_engine_files_are_named(tmp_path: Path) -> None:
    engine = build(Tiny().write(tmp_path / "hf"), tmp_path / "engine") / "rank0.engine"
    whole = engine.read_bytes()
    for damaged in (b"", whole[:-100], b"x" + whole[1:], whole[:12], whole[:200]):
        engine.write_bytes(damaged)
        with pytest.raises(EngineError, match=r"build (it|the engine) again"):
            load(engine)
