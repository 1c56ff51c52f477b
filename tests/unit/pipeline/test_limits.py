"""Limits that follow from checkpoint and memory, and warnings about memory that stays empty."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.pipeline import validation
from specdec.pipeline.validation import compatibility
from support.simulated_cluster import IMAGES, World
from unit.backends.pytorch_cases import problem, pytorch
from unit.pipeline.planned_memory import H100, L4, planned
from unit.pipeline.public import alone, checkpoint, spec

Json = dict[str, Any]


def open_limits(product: str = H100, tensor: int = 1, **target: Any) -> Json:
    """Return a resource of backend PyTorch without limits."""
    cr = pytorch("NGram", gpu={"product": product})
    del cr["spec"]["target"]["limits"]
    cr["spec"]["target"] |= {"parallelism": {"tensor": tensor}, **target}
    return cr


def known(name: str, positions: int = 131072) -> dict[str, Checkpoint]:
    plain = checkpoint("target", name)
    facts = plain.facts.updated(CheckpointFacts(max_position=positions))
    return {"target": replace(plain, facts=facts)}


def effective(cr: Json, checkpoints: dict[str, Checkpoint]) -> tuple[Json, Json]:
    """Return the limits in effect, and the plan of the memory."""
    plan = planned(SpeculativeModel.parse(cr), checkpoints).status["plan"]
    return plan["limits"]["target"], plan["memory"]


@pytest.mark.parametrize(
    ("name", "product", "tensor", "positions", "expected"),
    [
        # 55 GB for the cache of 128 KiB a token: half of it is for 64 requests of 2048 tokens.
        (
            "llama-3.1-8b",
            H100,
            1,
            131072,
            {"maxBatchSize": 64, "maxInputLen": 8192, "maxSeqLen": 32768, "maxNumTokens": 8192},
        ),
        # The model has 4096 positions, and the drafts of a step need 5 of them.
        (
            "vicuna-7b",
            H100,
            1,
            4096,
            {"maxBatchSize": 16, "maxInputLen": 3580, "maxSeqLen": 4091, "maxNumTokens": 8192},
        ),
        (
            "llama-3.1-8b",
            L4,
            1,
            131072,
            {"maxBatchSize": 8, "maxInputLen": 7168, "maxSeqLen": 8192, "maxNumTokens": 8192},
        ),
    ],
)
def test_open_limits_follow_from_checkpoint_and_memory(
    name: str, product: str, tensor: int, positions: int, expected: Json
) -> None:
    limits, memory = effective(open_limits(product, tensor), known(name, positions))

    assert limits == expected
    # Half of the cache holds the batch in usual requests, and a few full sequences fit.
    cache = memory["kvTokens"]["target"]
    assert cache >= 4 * limits["maxSeqLen"]
    assert cache >= 2 * limits["maxBatchSize"] * min(2048, limits["maxSeqLen"])


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen2-7b", "mistral-7b"])
def test_open_limits_leave_little_of_a_gpu_empty(name: str) -> None:
    _, memory = effective(open_limits(), known(name))

    (device,) = memory["devices"]
    assert device["percent"] >= 85


def test_cache_has_room_for_reused_blocks_beyond_a_full_batch() -> None:
    limits = {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 8192}

    reusing = effective(open_limits(limits=limits), known("llama-3.1-8b"))
    once = effective(open_limits(limits=limits, kvCache={"reuse": False}), known("llama-3.1-8b"))

    assert reusing[0] == once[0] == limits
    assert once[1]["kvTokens"]["target"] == 8 * 2112
    assert reusing[1]["kvTokens"]["target"] > 20 * 8 * 2112


def test_server_and_status_get_the_limits_in_effect() -> None:
    world = World(open_limits())
    facts = known("llama-3.1-8b")["target"]
    entry = {
        "digest": "a" * 64,
        "revision": "",
        "bytes": facts.bytes,
        "facts": facts.facts.shown(),
    }
    world.settle(lambda name: {"models": {"target": entry}} if name == "fetch" else {})

    assert world.cr["status"]["plan"]["limits"]["target"]["maxBatchSize"] == 64
    message = world.condition("MemoryFits")["message"]
    assert "limits follow from checkpoint and memory: maxBatchSize 64" in message
    assert world.condition("MemoryFits")["reason"] == "SufficientGpuMemory"
    texts = [t for m in world.config_maps.values() for t in m["data"].values()]
    (model_yaml,) = [yaml.safe_load(t) for t in texts if "tensor_parallel_size" in t]
    assert model_yaml["max_batch_size"] == 64
    assert model_yaml["max_seq_len"] == 32768


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"maxBatchSize": 16},
            {"maxBatchSize": 16, "maxInputLen": 8192, "maxSeqLen": 32768, "maxNumTokens": 8192},
        ),
        (
            {"maxSeqLen": 4096},
            {"maxBatchSize": 64, "maxInputLen": 3584, "maxSeqLen": 4096, "maxNumTokens": 8192},
        ),
        # A prompt fits into one step, and is followed by an answer.
        (
            {"maxInputLen": 40000},
            {"maxBatchSize": 64, "maxInputLen": 40000, "maxSeqLen": 41024, "maxNumTokens": 40000},
        ),
        # Four of these sequences do not fit, but one does.
        (
            {"maxSeqLen": 120000},
            {"maxBatchSize": 64, "maxInputLen": 8192, "maxSeqLen": 120000, "maxNumTokens": 8192},
        ),
        # Requests of 2048 tokens wait for each other.
        (
            {"maxBatchSize": 512},
            {"maxBatchSize": 512, "maxInputLen": 8192, "maxSeqLen": 32768, "maxNumTokens": 8192},
        ),
        # Six tokens for each sequence of a step, and prompts in one step.
        (
            {"maxNumTokens": 100},
            {"maxBatchSize": 16, "maxInputLen": 100, "maxSeqLen": 32768, "maxNumTokens": 100},
        ),
    ],
)
def test_limits_beside_a_set_one_follow_from_checkpoint_and_memory(
    given: Json, expected: Json
) -> None:
    """The defaults of the API beside one limit left prompts of 1024 tokens without a word."""
    limits, _ = effective(open_limits(limits=given), known("llama-3.1-8b"))

    assert limits == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"maxSeqLen": 900}, (8, 788, 900, 8192)),
        ({"maxInputLen": 3000}, (8, 3000, 4024, 8192)),
        ({"maxInputLen": 9000}, (8, 9000, 10024, 9000)),
        ({"maxNumTokens": 4}, (4, 4, 2048, 4)),
        ({"maxBatchSize": 9000}, (9000, 1792, 2048, 54000)),
    ],
)
def test_limits_beside_a_set_one_do_not_contradict_it_without_facts(
    given: Json, expected: tuple[int, ...]
) -> None:
    model = SpeculativeModel.parse(open_limits("Some-GPU", limits=given))
    plan = planned(model, {"target": checkpoint("target", "llama-3.1-8b")}).status["plan"]

    assert "memory" not in plan
    assert tuple(plan["limits"]["target"].values()) == expected


@pytest.mark.parametrize("product", [H100, "Some-GPU"])
def test_open_limits_keep_within_the_context_length_of_the_checkpoint(product: str) -> None:
    """With 2048 positions, a finding asked to lower the default 2048, which no user had set."""
    model = SpeculativeModel.parse(open_limits(product))
    target = known("tinyllama-1.1b", 2048)

    limits = planned(model, target).status["plan"]["limits"]["target"]

    assert limits["maxSeqLen"] == 2043
    assert compatibility.judge(model, {"target": target["target"].facts}).warnings == ()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"maxSeqLen": 900}, "limits.maxInputLen of the target is 1024 and maxSeqLen 900, so"),
        ({"maxInputLen": 3000}, "limits.maxInputLen of the target is 3000 and maxSeqLen 2048"),
        (
            {"maxInputLen": 4, "maxNumTokens": 4},
            "limits.maxNumTokens of the target is 4, below maxBatchSize 8: ",
        ),
    ],
)
def test_limit_that_contradicts_the_default_of_an_engine_is_refused(
    given: Json, sentence: str
) -> None:
    cause = validation.first_problem(alone(H100, spec(limits=given)), IMAGES)

    assert cause is not None
    assert cause.message.startswith(sentence)
    assert problem(open_limits(limits=given)) == ""


def test_limits_keep_their_defaults_without_the_context_length() -> None:
    given = {"target": checkpoint("target", "llama-3.1-8b")}

    limits, _ = effective(open_limits(), given)

    assert limits == {
        "maxBatchSize": 8,
        "maxInputLen": 1024,
        "maxSeqLen": 2048,
        "maxNumTokens": 8192,
    }


def test_engine_that_leaves_a_gpu_empty_is_named_with_a_limit_that_uses_it() -> None:
    given = known("llama-3.1-8b")
    (condition,) = planned(alone(H100, spec()), given).conditions

    assert condition.reason == "SufficientGpuMemory"
    text = "% of GPU target:0 stay empty: raise limits.maxBatchSize to "
    assert text in condition.message
    batch = int(condition.message.partition(text)[2].split()[0])
    larger = alone(H100, spec(limits={"maxBatchSize": batch}))
    (after,) = planned(larger, given).conditions
    assert after.reason == "SufficientGpuMemory"
    assert batch > 8


def test_full_gpu_has_no_warning() -> None:
    model = alone(H100, spec(limits={"maxBatchSize": 200}))
    (condition,) = planned(model, known("llama-3.1-8b")).conditions

    assert "stay empty" not in condition.message
