"""MemoryFits for builds: whether the GPUs of a build hold the model during quantization."""

from typing import Any

import pytest

from unit.pipeline.planned_memory import (
    A10,
    B200,
    FITS,
    H100,
    H200,
    L40S,
    NOT,
    SLICE,
    judged,
    outcome,
    planned,
)
from unit.pipeline.public import alone, checkpoint, spec


@pytest.mark.parametrize(
    ("name", "gpu", "tensor", "method", "expected"),
    [
        # Quantization holds the 16-bit weights and their copy. For 70B in FP8 TensorRT-LLM states
        # "more than 210 GB", and four GPUs of 80 GB. Two GPUs have 171 GB.
        ("llama-3.1-70b", H100, 4, "FP8", FITS),
        ("llama-3.1-70b", H100, 2, "FP8", NOT),
        ("llama-3.1-70b", H200, 1, "FP8", NOT),
        ("llama-3.1-70b", H200, 2, "FP8", FITS),
        ("llama-3.1-70b", L40S, 4, "INT4AWQ", FITS),
        ("llama-3.1-70b", L40S, 2, "INT4AWQ", NOT),
        # Quantization takes 1.2 TB, more than 8 GPUs of 85.5 GB.
        ("llama-3.1-405b", H100, 8, "FP8", NOT),
        ("llama-3.1-405b", B200, 8, "FP8", FITS),
        ("llama-3.1-8b", A10, 1, "FP8", FITS),
        ("llama-3.1-8b", SLICE, 1, "FP8", NOT),
    ],
)
def test_public_models_are_quantized_on_gpu_products(
    name: str, gpu: str, tensor: int, method: str, expected: str
) -> None:
    status = "False" if expected == NOT else "True"
    assert judged(alone(gpu, spec(tensor, method)), target=name) == (status, expected)


def test_message_has_what_quantizing_takes_and_the_remedy() -> None:
    result = outcome(alone(H100, spec(8, "FP8")), target="llama-3.1-405b")

    assert not result.proceed
    (condition,) = result.conditions
    # 405.85e9 parameters x 3 bytes / 8 GPUs.
    assert (
        "quantization.method of the target is FP8, and quantizing it takes 145145 MiB of each of "
        "the 8 GPUs of its build, which have 81559: set the target's source to a checkpoint that "
        "is already quantized" in condition.message
    )
    for field in ("quantization.method to None", "engine.prebuilt", "gpu.product to NVIDIA-B200"):
        assert field in condition.message
    assert result.status["plan"]["memory"]["message"] == condition.message


def test_a_build_gets_the_gpus_of_one_pod() -> None:
    limits = {"maxBatchSize": 1}
    target = spec(parallelism={"tensor": 8, "pipeline": 2}, limits=limits)
    target["quantization"] = {"method": "FP8"}
    model = alone(H100, target, serving={"nodesPerReplica": 2})

    assert "of each of the 8 GPUs" in outcome(model, target="llama-3.1-405b").conditions[0].message


def test_quantizing_what_cannot_fit_is_left_to_the_severity() -> None:
    target = spec(8, "FP8")
    warned = outcome(alone(H100, target, checks={"memory": "Warn"}), target="llama-3.1-405b")
    disabled = alone(H100, target, checks={"memory": "Disabled"})

    assert warned.proceed
    assert "not enforced" in warned.conditions[0].message
    assert "quantizing it takes" in warned.conditions[0].message
    # The caches come from the plan of the quantized model, which fits.
    assert warned.facts.kv_tokens == {"target": 8 * 2048}
    assert judged(disabled, target="llama-3.1-405b") == ("True", "Unchecked")


@pytest.mark.parametrize(
    "more",
    [
        {"engine": {"prebuilt": {"pvc": {"claimName": "engines", "path": "x"}}}},
        {"build": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "many"}]}},
    ],
    ids=["prebuilt", "claims"],
)
def test_quantizing_is_not_judged_where_its_gpus_are_not_known(more: dict[str, Any]) -> None:
    target = {**spec(8, "FP8"), **{k: v for k, v in more.items() if k == "engine"}}
    build = {k: v for k, v in more.items() if k == "build"}
    given = {"target": checkpoint("target", "llama-3.1-405b")}
    if "engine" in more:
        given["target-engine"] = checkpoint("target-engine", "llama-3.1-405b", stored="FP8")

    result = planned(alone(H100, target, **build), given)

    assert result.conditions[0].reason == FITS
