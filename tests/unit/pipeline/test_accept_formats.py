"""The accept stage checks number formats, pipeline stages and long prompts."""

import pytest

from support.simulated_cluster import World, limits
from unit.pipeline.tensorrt import put, tensorrt

DRAFT_BLOCK = "speculation.draftTarget"


@pytest.mark.parametrize(
    ("has", "method", "accepted"),
    [
        ("9.0", "INT4AWQ", True),
        ("10.0", "INT4AWQ", False),
        ("10.3", "W4A8AWQ", False),
        ("10.0", "INT8SQ", False),
        ("10.0", "FP8", True),
        ("12.0", "INT4AWQ", True),
    ],
)
def test_blackwell_has_no_integer_weights(has: str, method: str, accepted: bool) -> None:
    cr = put(tensorrt("None"), "gpu.computeCapability", has)
    world = World(put(cr, "target.quantization.method", method))

    world.step()

    condition = world.condition("Accepted")
    assert (condition["status"] == "True") is accepted
    if not accepted:
        assert condition["reason"] == "UnsupportedGpu"
        assert condition["message"].startswith(
            f"quantization.method of the target is {method}, which GPUs of compute capability "
            "10.0 to below 12.0 do not support, and GPU "
        )


def test_a_later_release_quantizes_a_redrafter() -> None:
    cr = tensorrt("ReDrafter", version="1.2.1")
    world = World(put(cr, "target.quantization.method", "FP8"))
    world.step()
    assert world.condition("Accepted")["status"] == "True"


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("Lookahead", "target", "parallelism.pipeline of the target is 2, and releases are known"),
        ("DraftTarget", f"{DRAFT_BLOCK}.draft", "parallelism.pipeline of the draft is 2"),
        ("None", "target", ""),
    ],
)
def test_speculation_over_pipeline_stages_is_accepted_with_a_warning(
    method: str, path: str, text: str
) -> None:
    world = World(put(tensorrt(method), f"{path}.parallelism.pipeline", 2))
    world.step()
    accepted = world.condition("Accepted")
    assert accepted["status"] == "True"
    assert ("warning: parallelism" in accepted["message"]) is bool(text)
    assert text in accepted["message"]


def test_long_prompts_need_chunked_context() -> None:
    cr = put(tensorrt("None"), "target.limits", limits(maxNumTokens=16))
    world = World(put(cr, "runtime.chunkedContext", True))
    world.step()
    assert world.condition("Accepted")["status"] == "True"
