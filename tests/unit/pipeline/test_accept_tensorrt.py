"""Resources that the accept stage refuses for TensorRT, and the plan of an accepted one."""

from typing import Any

import pytest

from support.simulated_cluster import World, limits, resource, source
from unit.pipeline.tensorrt import put, tensorrt

DRAFT_BLOCK = "speculation.draftTarget"
TENSORRT_BAD = [
    ("None", "gpu.product", "Tesla-V100-SXM2-16GB", "UnsupportedGpu", "needs compute capability"),
    (
        "None",
        "target.quantization.method",
        "NVFP4",
        "UnsupportedGpu",
        "NVFP4 of the target needs compute capability 10.0, and GPU NVIDIA-H100-80GB-HBM3 has 9.0",
    ),
    ("None", "runtime.version", "0.17.0", "UnsupportedVersion", "0.18.0, 0.19.0, 1.2.1"),
    ("Lookahead", "runtime.version", "0.18.0", "UnsupportedMethod", "Lookahead"),
    ("Eagle", "speculation.eagle.choices", [[0]], "InvalidSpec", "eagle.choices is 1 levels deep"),
    (
        "Eagle",
        "speculation.maxDraftTokens",
        62,
        "InvalidSpec",
        "default tree has 63 tokens",
    ),
    ("Medusa", "speculation.medusa.choices", [[0, 1]], "InvalidSpec", "without its parent [0]"),
    ("Medusa", "speculation.maxDraftTokens", None, "InvalidSpec", "set maxDraftTokens"),
    ("Eagle", "target.parallelism.pipeline", 2, "InvalidSpec", "pipeline to 1 and raise tensor"),
    (
        "ReDrafter",
        "target.parallelism.pipeline",
        2,
        "InvalidSpec",
        "methods Eagle and ReDrafter split a model by tensor parallelism alone",
    ),
    (
        "Eagle",
        "target.quantization.method",
        "FP8",
        "InvalidSpec",
        "spec.target.quantization: the converter of method Eagle quantizes nothing: remove",
    ),
    (
        "ReDrafter",
        "target.quantization.method",
        "FP8",
        "InvalidSpec",
        "the ReDrafter converter of 0.19.0 quantizes nothing: remove quantization, or set "
        "runtime.version to 1.0.0 or newer",
    ),
    ("Eagle", "speculation.eagle", None, "InvalidSpec", "method is Eagle: set the block eagle"),
    ("None", "speculation.lookahead", {}, "InvalidSpec", "remove the block"),
    ("None", "runtime.parameters", {"gpu_device_ids": "7"}, "InvalidSpec", "another field sets"),
    (
        "DraftTarget",
        f"{DRAFT_BLOCK}.draftLengthCeiling",
        9,
        "InvalidSpec",
        "not exceed maxDraft",
    ),
    (
        "DraftTarget",
        f"{DRAFT_BLOCK}.draftLengthCeiling",
        3,
        "InvalidSpec",
        "draftTokens must not exceed draftLengthCeiling",
    ),
    ("DraftTarget", "target.kvCache.reuse", False, "InvalidSpec", "spec.target.kvCache.reuse: "),
    ("None", "target.engine.pagedContextFmha", False, "InvalidSpec", "kvCache.reuse reads blocks"),
    (
        "None",
        "target.quantization",
        {"method": "INT4AWQ", "kvCache": "FP8"},
        "InvalidSpec",
        "spec.target.quantization.kvCache: paged context attention reads an FP8 cache only with "
        "method FP8, W4A8AWQ or NVFP4: ",
    ),
    (
        "DraftTarget",
        f"{DRAFT_BLOCK}.draft.engine.fp8ContextFmha",
        True,
        "InvalidSpec",
        "spec.speculation.draftTarget.draft.engine.fp8ContextFmha: engine.fp8ContextFmha needs",
    ),
    (
        "None",
        "target",
        {
            "source": source("target"),
            "quantization": {"method": "FP8"},
            "engine": {"fp8ContextFmha": True},
        },
        "InvalidSpec",
        "with pagedContextFmha also an FP8 cache: set quantization.method to FP8, W4A8AWQ or "
        "NVFP4 and quantization.kvCache to FP8, or remove fp8ContextFmha",
    ),
    (
        "Eagle",
        "target.limits",
        limits(maxBatchSize=513),
        "InvalidSpec",
        "spec.target.limits.maxBatchSize: method Eagle is built for 512 requests at most: set",
    ),
    (
        "None",
        "runtime.parameters",
        {"sink_token_length": "4"},
        "InvalidSpec",
        "paged context attention does not support sink_token_length: remove it",
    ),
    *(
        (
            "DraftTarget",
            "runtime.parameters",
            {"kv_cache_onboard_blocks": value},
            "InvalidSpec",
            "spec.runtime.parameters: paged context attention needs its blocks on the GPU: remove "
            "kv_cache_onboard_blocks",
        )
        for value in ("false", "False", "0")
    ),
]


@pytest.mark.parametrize(("method", "path", "value", "reason", "text"), TENSORRT_BAD)
def test_refuses_what_tensorrt_cannot(
    method: str, path: str, value: Any, reason: str, text: str
) -> None:
    world = World(put(tensorrt(method), path, value))

    world.step()

    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", reason)
    assert text in accepted["message"]


@pytest.mark.parametrize("quantization", ["None", "FP8"])
def test_quantization_on_an_unknown_gpu_is_refused(quantization: str) -> None:
    cr = put(tensorrt("None"), "gpu.product", "Unknown-Product")
    world = World(put(cr, "target.quantization.method", quantization))
    world.step()
    known = quantization == "None"
    assert world.condition("Accepted")["status"] == ("True" if known else "False")
    if not known:
        assert "set spec.gpu.computeCapability" in world.condition("Accepted")["message"]
        put(world.cr, "gpu.computeCapability", "8.9")
        world.step()
        assert world.condition("Accepted")["status"] == "True"


def test_deprecated_backend_is_reported_and_served() -> None:
    world = World(tensorrt("Medusa"))
    world.step()
    condition = world.condition("Deprecated")
    assert (condition["status"], condition["reason"]) == ("True", "EnginesRemoved")
    message = condition["message"]
    assert message.startswith("TensorRT-LLM removed engines after 1.2.x")
    assert "move to backend PyTorch, method Eagle3 (https://nvidia.github.io/" in message
    assert "specdec migrate prints the migrated resource" in message
    assert world.condition("Accepted")["status"] == "True"


def test_backend_with_a_future_is_not_deprecated() -> None:
    world = World(resource("DraftTarget"))
    world.step()
    assert "Deprecated" not in {c["type"] for c in world.cr["status"]["conditions"]}


def test_plan_has_the_launch_of_the_servers() -> None:
    cr = put(tensorrt(), "target.parallelism.tensor", 4)
    world = World(put(cr, f"{DRAFT_BLOCK}.placement", "Dedicated"))

    world.step()

    plan = world.cr["status"]["plan"]
    assert plan["devices"] == {"target": [0, 1, 2, 3], "draft": [4]}
    assert (plan["launch"], plan["worldSize"], plan["gpusPerPod"]) == ("Orchestrator", 6, 5)
    assert plan["participantIds"] == {"target": [2, 3, 4, 5], "draft": [1]}
    assert plan["gpuProduct"] == "NVIDIA-H100-80GB-HBM3"
