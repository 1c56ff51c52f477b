"""Caches and weights of public models: closed forms of their architectures, published sizes."""

import json
from dataclasses import replace
from typing import Any

import pytest

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.backends.checkpoint_sizes import sizes_of
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import EngineSizes, cache_rates, footprint
from specdec.jobs import configuration_facts
from specdec.tools.dry_run import configuration
from unit.backends.pytorch_cases import pytorch
from unit.jobs.test_public_checkpoints import TARGETS, written
from unit.pipeline.planned_memory import planned

PLANNED = [name for name, case in TARGETS.items() if "rate" in case]


def engine(name: str, **changed: Any) -> EngineSizes:
    """Return a target on one GPU, with 16-bit weights and caches."""
    facts = configuration_facts.checkpoint(TARGETS[name]["config"])
    counted = CheckpointFacts(parameters=10**9)
    sizes = sizes_of(Checkpoint("target", "", "", 0, facts.updated(counted)), None)
    assert sizes is not None
    one = EngineSizes(
        sizes=sizes,
        tensor=1,
        pipeline=1,
        bytes_per_body_parameter=2,
        bytes_per_value=2,
        bytes_per_kv_element=2,
        max_batch_size=8,
        max_seq_len=32768,
        max_num_tokens=8192,
    )
    return replace(one, **changed)


@pytest.mark.parametrize("name", PLANNED)
def test_cache_of_a_token_is_the_closed_form_of_the_architecture(name: str) -> None:
    case = TARGETS[name]
    rates = cache_rates(engine(name))
    assert rates.full == 2 * case["rate"] + case.get("index", 0)
    assert rates.window == 2 * case.get("window", 0)
    state = engine(name).sizes.state
    assert rates.state == 4 * state
    assert state == case["facts"].get("stateSize", state)


@pytest.mark.parametrize("name", ["openai/gpt-oss-120b", "google/gemma-3-27b-it"])
def test_cache_that_keeps_windows_whole_counts_them_as_other_layers(name: str) -> None:
    case = TARGETS[name]
    assert footprint(engine(name)).kv_per_token == 2 * (case["rate"] + case["window"])


def test_states_are_a_part_of_their_own() -> None:
    name = "Qwen/Qwen3-Next-80B-A3B-Instruct"
    state, rate = 4 * 19759104, 2 * TARGETS[name]["rate"]
    apart = footprint(engine(name, draft_len=1))
    assert apart.parts["States"] == 8 * 2 * state
    assert apart.kv_per_token == rate
    assert footprint(engine(name, tensor=2)).parts["States"] == 8 * state // 2


def test_cache_of_unknown_layers_is_not_planned_and_the_message_names_it() -> None:
    facts = configuration_facts.checkpoint(TARGETS["deepseek-ai/DeepSeek-V4-Flash"]["config"])
    target = Checkpoint("target", "", "", 10**12, facts)
    assert sizes_of(target, None) is None
    cr = pytorch("NGram", gpu={"product": "NVIDIA-H200"})
    (condition,) = planned(SpeculativeModel.parse(cr), {"target": target}).conditions
    assert condition.reason == "UnknownSize"
    assert "no formula for the cache of compress_ratios" in condition.message


@pytest.mark.parametrize("name", [name for name, case in TARGETS.items() if "gigabytes" in case])
def test_weights_are_near_their_published_size(name: str, tmp_path: Any) -> None:
    facts = configuration.facts(written(tmp_path / "m", json.loads(json.dumps(TARGETS[name]))))
    planned = configuration.stored_bytes("target", facts) / 1e9
    assert planned == pytest.approx(TARGETS[name]["gigabytes"], rel=0.03)
