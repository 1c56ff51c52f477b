"""What a build with `trtllm-build` takes from its node."""

from collections.abc import Mapping
from typing import Any

from specdec.desired.engine import Needs

# Converting reads the whole checkpoint and writes it split, a rank at a time; building takes one
# rank and TensorRT's workspace. Half as much again as the weights has room for both.
_COPIES = 1.5
# Python, torch and a CUDA context, whatever the model.
_BASE = 8 << 30


def needs(plan: Mapping[str, Any], devices: int, weights: int) -> Needs:
    """What the build of a plan takes.

    One GPU builds the engines of all ranks, one after another; `engine.workers` GPUs build as many
    at the same time. Only quantization needs a GPU for every rank: it runs the whole model to
    calibrate it.

    Args:
        plan: the build plan.
        devices: GPUs that the engine is served on.
        weights: bytes of the checkpoints that the plan reads.
    """
    quantized = plan["quantization"]["method"] != "None"
    gpus = devices if quantized else min(plan["engine"].get("workers") or 1, devices)
    return Needs(gpus, int(weights * _COPIES) + _BASE)
