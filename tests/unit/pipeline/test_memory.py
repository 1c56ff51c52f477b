"""MemoryFits: the memory plan of a resource's models."""

from dataclasses import replace
from typing import Any

import pytest

from specdec.backends.facts import Facts
from specdec.pipeline.observed import Observed
from specdec.pipeline.stage import Context, Outcome
from specdec.pipeline.stages.memory import memory
from support.simulated_cluster import IMAGES, NOW
from unit.pipeline.planned_memory import (
    A10,
    A100,
    B200,
    FITS,
    H100,
    H200,
    L4,
    L40S,
    NOT,
    SLICE,
    T4,
    TIGHT,
    judged,
    outcome,
    planned,
)
from unit.pipeline.public import alone, checkpoint, pair, spec


@pytest.mark.parametrize(
    ("name", "gpu", "tensor", "stored", "expected"),
    [
        # Models that are known to run on a product, with 8 sequences of 2048 tokens.
        ("llama-3.1-8b", T4, 1, "None", NOT),
        ("llama-3.1-8b", A10, 1, "None", FITS),
        ("llama-3.1-8b", SLICE, 1, "FP8", FITS),
        ("llama-3.1-70b", H100, 1, "None", NOT),
        ("llama-3.1-70b", H100, 1, "FP8", FITS),
        ("llama-3.1-70b", H200, 1, "FP8", FITS),
        ("llama-3.1-70b", H100, 2, "None", FITS),
        # Of 40 GiB, weights take 34.3, activations 0.9, runtime 1.9; the cache needs 1.25 of 2.6.
        ("llama-3.1-70b", A100, 4, "None", FITS),
        ("llama-3.1-70b", L40S, 1, "INT4AWQ", TIGHT),
        ("llama-3.1-70b", L4, 8, "FP8", FITS),
        ("llama-3.1-405b", H100, 8, "None", NOT),
        ("llama-3.1-405b", H100, 8, "FP8", FITS),
        ("llama-3.1-405b", B200, 2, "NVFP4", FITS),
        ("llama-3.1-405b", B200, 8, "None", FITS),
        ("vicuna-7b", T4, 1, "None", NOT),
        ("vicuna-7b", L4, 1, "None", TIGHT),
        ("vicuna-13b", A10, 1, "None", NOT),
        ("vicuna-13b", L40S, 1, "None", FITS),
        ("codellama-34b", L40S, 1, "None", NOT),
        ("codellama-34b", L40S, 2, "None", FITS),
        ("mistral-7b", A10, 1, "None", FITS),
        ("mixtral-8x7b", H100, 1, "None", NOT),
        ("mixtral-8x7b", H100, 1, "FP8", FITS),
        ("mixtral-8x7b", H100, 2, "None", FITS),
        ("qwen2-7b", L4, 1, "None", FITS),
        ("qwen2-72b", H100, 2, "None", FITS),
        ("qwen2-72b", H100, 4, "None", FITS),
        # Of 22.5 GiB, weights take 18.9, the rest 1.0 and 1.2; a cache of 1.2 holds 3700 tokens.
        ("gemma-2-9b", L4, 1, "None", TIGHT),
        ("tinyllama-1.1b", T4, 1, "None", FITS),
    ],
)
def test_public_models_on_gpu_products(
    name: str, gpu: str, tensor: int, stored: str, expected: str
) -> None:
    status = "False" if expected == NOT else "True"
    model = alone(gpu, spec(tensor))

    result = planned(model, {"target": checkpoint("target", name, stored=stored)})

    (condition,) = result.conditions
    assert (condition.status, condition.reason) == (status, expected)


@pytest.mark.parametrize(
    ("target", "draft", "gpu", "tensor", "block", "expected"),
    [
        # Of 22.5 GiB, weights take 17.8 and the rest 2.9; 1.6 remain for two caches that need 2.5.
        ("llama-3.1-8b", "llama-3.2-1b", A10, 1, {}, TIGHT),
        ("vicuna-7b", "tinyllama-1.1b", T4, 1, {}, NOT),
        ("llama-3.1-8b", "llama-3.2-1b", L40S, 1, {}, FITS),
        ("llama-3.1-8b", "llama-3.2-1b", A10, 1, {"placement": "Dedicated"}, FITS),
        ("llama-3.1-70b", "llama-3.2-1b", H100, 4, {}, FITS),
        ("llama-3.1-70b", "llama-3.1-8b", H100, 2, {}, NOT),
        ("llama-3.1-70b", "llama-3.1-8b", H100, 2, {"placement": "Dedicated"}, FITS),
    ],
)
def test_public_pairs_on_gpu_products(
    target: str, draft: str, gpu: str, tensor: int, block: dict[str, Any], expected: str
) -> None:
    status = "False" if expected == NOT else "True"
    model = pair(gpu, spec(tensor), spec(), block)

    assert judged(model, target=target, draft=draft) == (status, expected)


def test_eight_bit_weights_leave_room_for_a_draft() -> None:
    model = pair(A10, spec(1, "FP8"), spec())

    result = outcome(model, target="llama-3.1-8b", draft="llama-3.2-1b")

    assert result.conditions[0].reason == FITS
    # 8 sequences: of 2048 and ten draft tokens, rounded up to blocks of 64, and of 2048 tokens.
    assert result.facts.kv_tokens == {"target": 8 * 2112, "draft": 8 * 2048}


def test_status_has_the_plan_with_its_sums() -> None:
    result = outcome(
        pair(H100, spec(4), spec(), {"placement": "Dedicated"}),
        target="llama-3.1-70b",
        draft="llama-3.2-1b",
    )

    shown = result.status["plan"]["memory"]
    assert [d["device"] for d in shown["devices"]] == [
        *(f"target:{i}" for i in range(4)),
        "draft:4",
    ]
    assert shown["kvTokens"] == result.facts.kv_tokens
    assert shown["message"] == result.conditions[0].message
    for device in shown["devices"]:
        assert device["gpuMiB"] == 81559
        assert device["usedMiB"] == sum(device["parts"].values())
        assert device["percent"] == pytest.approx(100 * device["usedMiB"] / 81559, abs=1)


def test_refusal_has_the_numbers_and_the_remedy() -> None:
    result = outcome(alone(L4, spec()), target="vicuna-13b")

    assert not result.proceed
    assert result.facts.kv_tokens == {}
    message = result.conditions[0].message
    # 24.24 GiB are 24826 MiB.
    assert "GPU target:0 has 23034 MiB" in message
    assert "targetWeights 24826" in message
    assert "parallelism.tensor" in message


def test_message_has_the_size_of_a_cache_that_is_too_small() -> None:
    limits = {"maxBatchSize": 1, "maxInputLen": 100_000, "maxSeqLen": 131_072}
    result = outcome(alone(A10, spec(limits=limits)), target="llama-3.1-8b")

    assert result.conditions[0].reason == NOT
    assert "longest sequence has 131072" in result.conditions[0].message
    assert "lower limits.maxSeqLen" in result.conditions[0].message


def test_message_names_fixed_budgets_that_are_too_large() -> None:
    result = outcome(alone(A10, spec(kvCache={"maxTokens": 10**6})), target="llama-3.1-8b")

    assert result.conditions[0].reason == NOT
    assert "targetKvCache 125000" in result.conditions[0].message
    assert "lower kvCache.maxTokens" in result.conditions[0].message


def test_message_has_the_number_of_sequences_a_cache_has_room_for() -> None:
    limits = {"maxBatchSize": 64, "maxInputLen": 1024, "maxSeqLen": 2048}
    result = outcome(alone(A10, spec(limits=limits)), target="llama-3.1-8b")

    (condition,) = result.conditions
    assert (condition.status, condition.reason) == ("True", TIGHT)
    assert result.proceed
    slots = result.facts.kv_tokens["target"] // 2048
    assert 0 < slots < 64
    assert f"room for {slots} of 64 sequences" in condition.message


def test_severity_warn_serves_with_a_warning() -> None:
    model = alone(T4, spec(), checks={"memory": "Warn"})

    result = outcome(model, target="llama-3.1-8b")

    (condition,) = result.conditions
    assert (condition.status, condition.reason) == ("True", NOT)
    assert condition.message.startswith("not enforced, because spec.checks.memory is Warn")
    assert result.proceed
    assert result.facts.kv_tokens == {"target": 2048}


def test_severity_disabled_serves_without_the_plan() -> None:
    model = alone(T4, spec(), checks={"memory": "Disabled"})

    assert judged(model, target="llama-3.1-8b") == ("True", "Unchecked")
    assert outcome(model, target="llama-3.1-8b").proceed


@pytest.mark.parametrize("product", ["NVIDIA-Z1", "NVIDIA-A10-SHARED"])
def test_unknown_gpu_is_reported_and_passes(product: str) -> None:
    result = outcome(alone(product, spec()), target="llama-3.1-8b")

    (condition,) = result.conditions
    assert (condition.status, condition.reason) == ("Unknown", "UnknownGpu")
    assert "spec.gpu.memoryMiB" in condition.message
    assert product in condition.message
    assert result.proceed
    assert result.facts.kv_tokens == {}


def test_memory_of_the_spec_overrides_that_of_the_product() -> None:
    other = {"gpu": {"product": "NVIDIA-Z1", "memoryMiB": 81559}}
    less = {"gpu": {"product": H100, "memoryMiB": 15000}}

    assert judged(alone(None, spec(), **other), target="llama-3.1-8b") == ("True", FITS)
    assert judged(alone(None, spec(), **less), target="llama-3.1-8b") == ("False", NOT)


def test_unknown_sizes_are_reported_and_pass() -> None:
    model = pair(H100, spec(), spec())

    assert judged(model, target="llama-3.1-8b") == ("Unknown", "UnknownSize")
    assert outcome(model, target="llama-3.1-8b").proceed


def outcome_of(**facts: int) -> Outcome:
    """Return the outcome for Vicuna with other numbers in its configuration."""
    known = checkpoint("target", "vicuna-7b")
    damaged = replace(known, facts=known.facts.model_copy(update=facts))
    model = alone(A10, spec(kvCache={"maxTokens": 10**9}))
    return memory(Context(model, Observed(NOW), IMAGES, Facts(checkpoints={"target": damaged})))


def test_absurd_configurations_have_no_footprint() -> None:
    result = outcome_of(layers=10**4000)

    assert result.conditions[0].reason == "UnknownSize"


def test_plan_of_absurd_sizes_passes_the_status_schema() -> None:
    sizes = dict.fromkeys(("layers", "hidden_size", "intermediate_size", "kv_heads"), 10**8)

    result = outcome_of(**sizes)

    assert result.conditions[0].reason == NOT
    (device,) = result.status["plan"]["memory"]["devices"]
    assert device["percent"] < 2**31
    assert device["usedMiB"] < 2**63
